package ep

import "github.com/unifiedd/unifiedd/rdma"

// Completions are a completion queue, and a buffer for what it gives.
type Completions struct {
	Queue rdma.CompletionQueue
	Buf   [64]rdma.WorkCompletion
	armed bool // the queue will signal its next completion
	came  bool // completions came since it was armed: it has signalled, or is about to
}

// Poll takes completions into Buf and returns how many.
func (c *Completions) Poll() (int, error) {
	n, err := c.Queue.Poll(c.Buf[:])
	c.came = c.came || n > 0
	return n, err
}

// Arm arms the queue if wanted is set: it then signals its next completion. If the queue was not armed before, Arm
// returns true, and the caller must poll again. woken says that the caller was woken. Asking whether the queue has
// signalled is a system call, so Arm asks only then, or after completions came.
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
