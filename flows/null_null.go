package flows

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/umem"
)

// nullNull makes packets and gives them back: what is left is the worker's round and the owners' books.
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type nullNull struct {
	common
	faults
	generator
	discard
	level
	book *umem.Book
}

// openNullNull takes frames. Nothing moves until a worker polls it and it has begun.
func openNullNull(o *opening) (*nullNull, error) {
	n := &nullNull{book: o.book}
	if err := n.openGenerator(o, 0, 0); err != nil {
		return nil, err
	}
	n.discard.region, n.discard.free = o.region, n.spare
	n.ends.from, n.ends.to = numa.Unknown, numa.Unknown
	n.Watermarks = o.flow.Watermarks
	o.complete(&n.common)
	return n, nil
}

// poll is one round.
func (n *nullNull) Poll(now time.Time) (more bool) {
	more = n.generate(n, n.below(n.away(), now), now)
	n.book.Publish()
	return more
}

func (n *nullNull) FDs(dst []unix.PollFd) []unix.PollFd { return dst }

func (n *nullNull) Deadline(now time.Time) time.Time { return n.generator.Deadline(now) }

func (n *nullNull) check(time.Time) (waits, ends error) { return nil, nil }

func (n *nullNull) finish(time.Time, uint64) (bool, error) { return n.idle(), nil }

func (n *nullNull) traffic() (packets, bytes uint64) { return n.generator.traffic() }

func (n *nullNull) observe(s *FlowStatus) error {
	n.discard.observe(s)
	n.generator.observe(s)
	n.level.observe(s)
	return nil
}

func (n *nullNull) abandon(s *FlowStatus) { n.generator.abandon(s) }
