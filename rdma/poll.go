package rdma

// batchSize is how many completions one call polls at most.
const batchSize = 64

// completions are those of one queue that were polled and not used yet.
type completions struct {
	queue CompletionQueue
	buf   [batchSize]WorkCompletion
	at, n int
	fresh bool  // some came since the queue was armed
	err   error // the queue's, once it is gone
}

// next is at most so many completions, which are used with that. It polls when it has none
// left.
func (c *completions) next(most int) []WorkCompletion {
	if c.at == c.n {
		c.fill()
	}
	n := min(most, c.n-c.at)
	c.at += n
	return c.buf[c.at-n : c.at]
}

// fill polls, and reports whether there is something to use.
func (c *completions) fill() bool {
	if c.left() {
		return true
	}
	n, err := c.queue.Poll(c.buf[:])
	if err != nil {
		c.err = err
	}
	c.at, c.n = 0, n
	c.fresh = c.fresh || n > 0
	return n > 0
}

// last reports that all are used of a poll that left room: there was no more then.
func (c *completions) last() bool { return c.at == c.n && c.n < len(c.buf) }

// left reports whether some were polled and not used.
func (c *completions) left() bool { return c.at < c.n }
