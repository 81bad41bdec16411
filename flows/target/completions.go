package target

import "github.com/unifiedd/unifiedd/rdma"

// completions are a queue, and room for what it gives.
type completions struct {
	queue rdma.CompletionQueue
	buf   [64]rdma.WorkCompletion
	armed bool
}

// arm has the queue tell of its next completion, and reports whether it did not before: then it is to be polled again.
func (c *completions) arm() (anew bool, err error) {
	events, err := c.queue.Acknowledge()
	if err != nil || c.armed && events == 0 {
		return false, err
	}
	c.armed = true
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
