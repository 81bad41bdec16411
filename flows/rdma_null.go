package flows

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/umem"
)

// rdmaNull takes messages of RDMA clients and acknowledges each as soon as it is received, to measure that alone: a log without a disk. Positions
// begin with 1 at each start.
//
//	RDMA Recv → position → counted → RDMA Supply
//	                          └─ acknowledgement
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type rdmaNull struct {
	common
	faults
	inbox
	positions
	discard
	level
	book *umem.Book
}

// openRDMANull opens the end at which messages arrive. Nothing moves until a worker polls it and it has begun.
func openRDMANull(o *opening) (*rdmaNull, error) {
	n := &rdmaNull{book: o.book}
	n.positions.region, n.positions.log = o.region, true
	if err := n.openInbox(o, inboxConfig{away: 2, wish: 2 * burst, durability: protocol.Received}); err != nil {
		return nil, err
	}
	n.discard.region, n.discard.free = o.region, n.spare
	n.supply()
	n.ends.from, n.ends.to = numa.Unknown, numa.Unknown
	n.Watermarks = o.flow.Watermarks
	o.complete(&n.common)
	return n, nil
}

// poll is one round.
func (n *rdmaNull) Poll(now time.Time) (more bool) {
	if n.failed.Load() == nil && n.below(n.frames(n.away()), now) {
		more = n.receive(now)
	}
	n.supply()
	n.note(n.receiver.Poll(now))
	n.show()
	n.book.Publish()
	return more
}

// receive takes messages, acknowledges and discards them, and reports whether more wait.
func (n *rdmaNull) receive(now time.Time) bool {
	_, more := n.take(n.room())
	came := n.buf[:n.count]
	if len(came) == 0 {
		return false
	}
	n.number(came, now)
	n.positions.acknowledge(n.receiver, n.given, now)
	n.discard.drop(came, now)
	n.count = 0
	return more
}

func (n *rdmaNull) FDs(dst []unix.PollFd) []unix.PollFd { return n.inbox.FDs(dst) }

func (n *rdmaNull) begin() error { return n.inbox.begin() }

func (n *rdmaNull) check(time.Time) (waits, ends error) { return n.inbox.check() }

// finish has what came acknowledged, and then clients told that the flow ends.
func (n *rdmaNull) finish(_ time.Time, rounds uint64) (bool, error) {
	if !n.quiet(rounds) || !n.receiver.Idle() {
		return false, nil
	}
	return n.serving.leave(), nil
}

// halt has clients of a flow that failed told at once.
func (n *rdmaNull) halt() error {
	if n.failed.Load() != nil {
		n.serving.leave()
	}
	return n.inbox.halt()
}

func (n *rdmaNull) traffic() (packets, bytes uint64) { return n.inbox.traffic() }

// observe reads the counters, those of what was discarded first: it came before.
func (n *rdmaNull) observe(s *FlowStatus) error {
	n.discard.observe(s)
	s.Latency = n.spent.Summary()
	n.inbox.observe(s)
	n.level.observe(s)
	return nil
}

func (n *rdmaNull) abandon(*FlowStatus) {}
