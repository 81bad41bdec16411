package flows

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// networkRDMA takes packets from the queues of one interface to RDMA peers, each as a
// message, sent from where it landed.
//
//	AF_XDP Recv → stages → RDMA SEND to each peer … acknowledged → AF_XDP Supply
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type networkRDMA struct {
	common
	faults
	intake
	feed
	level
	from config.From
	book *umem.Book
}

// poll is one round.
func (n *networkRDMA) Poll(now time.Time) (more bool) {
	n.stuck = false
	n.note(n.fan.Poll(now))
	n.free(n.spare)
	if n.failed.Load() == nil {
		more = n.receive(n, n.below(n.away(), now), now)
	}
	n.supply()
	n.note(n.fan.Kick())
	n.kick()
	n.book.Publish()
	return more
}

func (n *networkRDMA) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = n.outbox.FDs(dst)
	if n.stuck || n.closed {
		return dst // packets that wait are no news
	}
	return n.intake.FDs(dst)
}

func (n *networkRDMA) begin() error {
	n.connect()
	return n.intake.begin()
}

func (n *networkRDMA) announce() []any {
	return append(n.intake.announce(n.from), n.outbox.announce()...)
}

// check asks after both ends. A peer that is missing is waited for, while the flow goes on
// with the others.
func (n *networkRDMA) check(time.Time) (waits, ends error) {
	err := n.checkNet()
	switch {
	case errors.Is(err, xdp.ErrInterfaceDown):
		return err, nil
	case err != nil:
		return nil, err
	}
	return n.outbox.check()
}

// finish empties the rings, and waits until peers have what came.
func (n *networkRDMA) finish(now time.Time, rounds uint64) (bool, error) {
	if !n.quiet(rounds) || !n.settled(now) {
		return false, nil
	}
	return n.dials.leave(), nil
}

// observe reads the counters, those of what was sent first: it came before.
func (n *networkRDMA) observe(s *FlowStatus) error {
	n.feed.observe(s)
	n.level.observe(s)
	return n.intake.observe(s)
}

// abandon counts as lost what the rings still held.
func (n *networkRDMA) abandon(s *FlowStatus) {
	s.Dropped["not_received"], s.Waiting = s.Waiting, 0
}
