package nvme

import "golang.org/x/sys/unix"

// maxTries is how often an operation is submitted again that the kernel gave up.
const maxTries = 64

// retryEAGAIN reports whether an operation is to be submitted again that the kernel gave up
// before it began. What cannot be done while submitting goes to a thread of the kernel's,
// and to start the first one it tries a few times only (WORKER_INIT_LIMIT in
// io_uring/io-wq.c): each of them fails while a signal waits for ours, and the Go runtime
// signals threads that run for long. A signal that has been taken does not wait any more,
// so trying again helps; where the limit on processes keeps the thread from being made,
// it does not for ever.
func (q *Queue) retryEAGAIN(o *op, errno unix.Errno) bool {
	if errno != unix.ECANCELED || q.closed || o.tries == maxTries {
		return false
	}
	o.tries++
	q.count.again++
	return true
}
