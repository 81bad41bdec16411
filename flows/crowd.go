package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// crowd notes when a flow's peers can take no more.
type crowd struct {
	stuck  bool            // in this round
	stalls counter.Counter // rounds in which something had to wait for that
}

// took notes whether all was taken, and returns that.
func (c *crowd) took(all bool) bool {
	if !all {
		c.stuck = true
		c.stalls.Add(1)
	}
	return all
}

// deadline is when to try again: what peers have room for makes their descriptors
// readable, and time that passes does not.
func (c *crowd) Deadline(now time.Time) time.Time {
	if c.stuck {
		return now.Add(time.Millisecond)
	}
	return now.Add(worker.MaxWait)
}

// There is no disk.
func (*crowd) trouble() error           { return nil }
func (*crowd) diagnose(err error) error { return err }
func (*crowd) pending() int             { return 0 }
func (*crowd) shut() error              { return nil }
