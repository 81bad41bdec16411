package flows

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// networkNull takes packets from the queues of one interface, to measure that alone.
//
//	AF_XDP Recv → counted → AF_XDP Supply
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type networkNull struct {
	common
	faults
	intake
	discard
	level
	from config.From
	book *umem.Book
}

// openNetworkNull opens the interface and fills its rings. Nothing moves until a worker polls it and it has begun.
func openNetworkNull(o *opening) (*networkNull, error) {
	n := &networkNull{from: o.flow.From, book: o.book}
	n.spare, n.limit = &umem.FreeList{}, o.shared.limit
	n.discard.region, n.discard.free = o.region, n.spare
	if err := n.openNet(o); err != nil {
		return nil, err
	}
	if err := n.fill(o, 2*burst, 2*burst); err != nil {
		return nil, err
	}
	n.ends.from, n.ends.to = n.net.Node(), numa.Unknown
	n.Watermarks = o.flow.Watermarks
	o.complete(&n.common)
	return n, nil
}

// poll is one round.
func (n *networkNull) Poll(now time.Time) (more bool) {
	if n.failed.Load() == nil {
		more = n.receive(n, n.below(n.away(), now), now)
	}
	n.supply()
	n.intake.kick()
	n.book.Publish()
	return more
}

func (n *networkNull) FDs(dst []unix.PollFd) []unix.PollFd { return n.intake.FDs(dst) }

func (n *networkNull) check(time.Time) (waits, ends error) {
	err := n.checkNet()
	if errors.Is(err, xdp.ErrInterfaceDown) {
		return err, nil
	}
	return nil, err
}

// finish empties the rings.
func (n *networkNull) finish(_ time.Time, rounds uint64) (bool, error) { return n.quiet(rounds), nil }

func (n *networkNull) announce() []any { return n.intake.announce(n.from) }

func (n *networkNull) traffic() (packets, bytes uint64) { return n.intake.traffic() }

// observe reads the counters, those of what was discarded first: it came before.
func (n *networkNull) observe(s *FlowStatus) error {
	n.discard.observe(s)
	n.level.observe(s)
	return n.intake.observe(s)
}

// abandon counts as lost what the rings still held.
func (n *networkNull) abandon(s *FlowStatus) {
	s.Dropped["not_received"], s.Waiting = s.Waiting, 0
}
