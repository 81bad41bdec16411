package nvme

import "errors"

// ErrBusy says that the queue has as many flushes, discards and zeroings in it as it
// takes, sixteen.
var ErrBusy = errors.New("too many flushes, discards and zeroings in the block queue: take what Flushed gives and try again")

// ErrClosed is returned by a queue or target that has been closed.
var ErrClosed = errors.New("closed already")

// ErrNoTarget says that a flush, discard or zeroing names no target of the queue.
var ErrNoTarget = errors.New("the block queue has no such target")

// FlushResult is what became of a Flush, Discard or Zero.
type FlushResult struct {
	Token uint64 // as given to it
	Err   error  // nil: it is done, and what a flush covers is on stable storage; on a node a Status
}

// Flush queues an fdatasync of a target. When it has completed without error,
// every write to the target whose completion was seen (by Reap) before Flush was
// called is on stable storage, with the metadata needed to read it. Writes still in
// flight at that time may or may not be. It starts with the next Kick, at the side
// of reads and writes: in a thread of the kernel (io-wq), or on a node as a command.
func (q *Queue) Flush(target uint32, token uint64) error {
	if err := q.admit(target, flushing); err != nil {
		return err
	}
	q.issue(q.begin(flushing, target, token))
	return nil
}

// admit says why an operation without frames cannot be taken.
func (q *Queue) admit(target uint32, k kind) error {
	switch {
	case q.closed:
		return ErrClosed
	case uint64(target) >= uint64(len(q.targets)) || q.targets[target].target == nil:
		return ErrNoTarget
	case q.flushes == MaxFlushes:
		return ErrBusy
	case q.ring.polled() && q.targets[target].target.node == nil:
		return errPolledControl
	}
	return nil
}

// errPolledControl says what a polled ring does not do.
var errPolledControl = &NotSupportedError{"flushing, discarding and zeroing on a polled queue",
	"write with SendDurable, use the disk's NVMe node, or flush through a queue without Poll"}

// begin takes an operation without frames.
func (q *Queue) begin(k kind, target uint32, token uint64) uint32 {
	q.flushes++
	i := q.take(k)
	q.ops[i].target, q.ops[i].token = target, token
	return i
}

// Flushed gives the results of flushes, discards and zeroings that completed, and
// returns how many.
func (q *Queue) Flushed(dst []FlushResult) int {
	q.harvest()
	n := 0
	for n < len(dst) && !q.flushed.empty() {
		i := q.flushed.first()
		dst[n] = FlushResult{Token: q.ops[i].token}
		dst[n].Err = q.ops[i].failure()
		q.flushed.drop()
		q.drop(i)
		q.flushes--
		n++
	}
	q.quiet()
	return n
}

// failure is why an operation failed, or nil.
func (o *op) failure() error {
	switch {
	case o.status != 0:
		return o.status
	case o.errno != 0:
		return o.errno
	}
	return nil
}
