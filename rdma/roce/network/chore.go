package network

import "time"

const (
	// settle is how long changes are gathered before things are read again: they come in swarms.
	settle = 5 * time.Millisecond
	// share of the time is spent on a chore at most, however much it is and however often it is wanted: 1/share.
	share = 10
)

// pendingRefresh is something to read again when the kernel has said that it changed.
type pendingRefresh struct {
	due  time.Time // zero: not wanted
	rest time.Time // it is not done before
}

func (c *pendingRefresh) wanted() bool { return !c.due.IsZero() }

// want has it done once changes have settled.
func (c *pendingRefresh) want() {
	if !c.wanted() {
		c.due = time.Now().Add(settle)
		if c.due.Before(c.rest) {
			c.due = c.rest
		}
	}
}

// by is when it must be done if that is before t, and else t.
func (c *pendingRefresh) by(t time.Time) time.Time {
	if c.wanted() && c.due.Before(t) {
		return c.due
	}
	return t
}

// do does it if it is time. It can be wanted again meanwhile.
func (c *pendingRefresh) do(f func()) {
	begun := time.Now()
	if !c.wanted() || begun.Before(c.due) {
		return
	}
	c.due = time.Time{}
	f()
	now := time.Now()
	c.rest = now.Add((share - 1) * now.Sub(begun))
	if c.wanted() {
		c.due = c.rest
	}
}
