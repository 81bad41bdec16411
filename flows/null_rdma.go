package flows

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/umem"
)

// nullRDMA takes packets that it makes to RDMA peers, to measure those alone.
//
//	made → stages → RDMA SEND to each peer … acknowledged → free
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type nullRDMA struct {
	common
	faults
	generator
	feed
	level
	book *umem.Book
}

// openNullRDMA opens both ends of a flow. Nothing moves until a worker polls it and it has begun.
func openNullRDMA(o *opening) (*nullRDMA, error) {
	n := &nullRDMA{book: o.book}
	n.feed.region = o.region
	if err := n.openStages(o.flow.Stages); err != nil {
		return nil, err
	}
	if err := n.openOutbox(o, uint32(o.flow.From.Generate), 1, o.flow.To.Queue); err != nil {
		return nil, err
	}
	if err := n.openGenerator(o, 2*burst, len(o.flow.To.Peers)*o.flow.To.Queue); err != nil {
		return nil, err
	}
	n.ends.from, n.ends.to = numa.Unknown, numa.Unknown
	n.Watermarks = o.flow.Watermarks
	o.complete(&n.common)
	return n, nil
}

// poll is one round.
func (n *nullRDMA) Poll(now time.Time) (more bool) {
	n.stuck = false
	n.note(n.fan.Poll(now))
	n.free(n.spare)
	if n.failed.Load() == nil {
		more = n.generate(n, n.below(n.away(), now), now)
	}
	n.note(n.fan.Kick())
	n.book.Publish()
	return more
}

func (n *nullRDMA) FDs(dst []unix.PollFd) []unix.PollFd { return n.outbox.FDs(dst) }

func (n *nullRDMA) Deadline(now time.Time) time.Time {
	return earlier(n.generator.Deadline(now), n.crowd.Deadline(now))
}

func (n *nullRDMA) begin() error {
	n.connect()
	return n.generator.begin()
}

func (n *nullRDMA) announce() []any { return append(n.generator.announce(), n.outbox.announce()...) }

func (n *nullRDMA) check(time.Time) (waits, ends error) { return n.outbox.check() }

// finish waits until peers have what was made.
func (n *nullRDMA) finish(now time.Time, _ uint64) (bool, error) {
	if !n.idle() || !n.settled(now) {
		return false, nil
	}
	return n.dials.leave(), nil
}

// observe reads the counters, those of what was sent first: it was made before.
func (n *nullRDMA) observe(s *FlowStatus) error {
	n.feed.observe(s)
	n.generator.observe(s)
	n.level.observe(s)
	return nil
}

func (n *nullRDMA) abandon(s *FlowStatus) { n.generator.abandon(s) }
