package replica

import (
	"errors"
	"fmt"
	"time"
)

// A link that catches up depends on frames, credits, a goroutine and the disk. If it sends nothing for stallTime though
// its follower lacks records, it is ended, so that the follower gets another one, and the others have its frames.
// Nothing else would end it: the heartbeats go on.

// stallTime is longer than a disk or a follower usually pauses.
const stallTime = 10 * time.Second

// errStalled ends such a link.
var errStalled = errors.New("it has sent no record for too long, though the follower lacks some")

// stall is for how long a link has sent nothing.
type stall struct {
	next uint64 // position of the next record to send
	time time.Duration
}

// look says that a window of time has ended. A link that waits for the disk or for frames of other links is not stalled:
// another link would wait, too. Of the time for which the worker was away, little counts.
func (c *catchUp) look(next uint64, window time.Duration) (stalled time.Duration) {
	s := &c.stall
	switch {
	case next != s.next:
		*s = stall{next: next}
	case c.lent > 0 && (c.ended || c.waits.Load()):
		s.time += min(window, 2*paceWindow)
	}
	return s.time
}

// endStalled ends a link that has sent nothing for too long.
func (l *Links) endStalled(k *Link) {
	c := k.copies
	l.stats.stalled.Add(1)
	_ = l.End(k, fmt.Errorf("%w: from %d on, of %d; the worker takes over at %d; %d of %d permitted are sent, and %d of %d requests done; of %d frames %d are to be sent, %d are sent and %d are free; the reader has ended: %v",
		errStalled, k.next, l.held.last, c.joined, k.sent, k.limit, k.done, k.requests, c.lent, len(c.now), len(c.flying), len(c.free), c.ended)) // the device is gone if that fails: Poll says so
}
