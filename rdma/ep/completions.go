package ep

import "github.com/unifiedd/unifiedd/rdma"

// Completions has a completion queue and a buffer for its completions.
type Completions struct {
	Queue rdma.CompletionQueue
	Buf   [64]rdma.WorkCompletion
	armed bool // the queue will signal its next completion
	came  bool // completions arrived since the queue was armed: it has signalled, or is about to
}

// Poll polls completions into Buf and returns their number.
func (c *Completions) Poll() (int, error) {
	n, err := c.Queue.Poll(c.Buf[:])
	c.came = c.came || n > 0
	return n, err
}

// maxPolls limits the number of polls in one Drain, so that a busy queue does not keep the worker.
const maxPolls = 8

// Drain polls the queue until it is empty, at most 8 times, and calls handle for each completion. It
// returns their number. The completions before an error have been handled.
func (c *Completions) Drain(handle func(*rdma.WorkCompletion)) (n int, err error) {
	for range maxPolls {
		got, err := c.Poll()
		if err != nil {
			return n, err
		}
		for i := range c.Buf[:got] {
			handle(&c.Buf[i])
		}
		if n += got; got < len(c.Buf) {
			break
		}
	}
	return n, nil
}

// Arm arms the queue if wanted is set: it then signals its next completion. If the queue was not
// armed before, Arm returns true, and the caller must poll again. woken means that an event woke
// the caller. It takes a system call to ask whether the queue has signalled, so Arm asks only if
// woken is set or completions arrived.
func (c *Completions) Arm(wanted, woken bool) (again bool, err error) {
	if c.armed && (c.came || woken) {
		events, err := c.Queue.Acknowledge()
		if err != nil {
			return false, err
		}
		c.armed = events == 0
	}
	if c.armed || !wanted {
		return false, nil
	}
	c.armed, c.came = true, false
	return true, c.Queue.Arm(false)
}

// Close closes the queue, if there is one. After an error it may be called again.
func (c *Completions) Close() error {
	if c.Queue == nil {
		return nil
	}
	err := c.Queue.Close()
	if err == nil {
		c.Queue = nil
	}
	return err
}
