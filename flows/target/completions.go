package target

import "github.com/unifiedd/unifiedd/rdma"

// completions are a queue, and room for what it gives.
type completions struct {
	queue rdma.CompletionQueue
	buf   [64]rdma.WorkCompletion
	armed bool // it tells of its next completion
	came  bool // completions, since it was armed: it has told, or is about to
}

// poll takes completions into the buffer.
func (c *completions) poll() (int, error) {
	n, err := c.queue.Poll(c.buf[:])
	c.came = c.came || n > 0
	return n, err
}

// arm has the queue tell of its next completion, if that is wanted, and reports whether it did not before: then it is to be polled again. It asks whether the queue has told where
// that may be, or where the caller was woken for nothing.
func (c *completions) arm(wanted, woken bool) (anew bool, err error) {
	if c.armed && (c.came || woken) {
		events, err := c.queue.Acknowledge()
		if err != nil {
			return false, err
		}
		c.armed = events == 0
	}
	if c.armed || !wanted {
		return false, nil
	}
	c.armed, c.came = true, false
	return true, c.queue.Arm(false)
}

// close closes the queue, if there is one.
func (c *completions) close() error {
	if c.queue == nil {
		return nil
	}
	err := c.queue.Close()
	if err == nil {
		c.queue = nil
	}
	return err
}
