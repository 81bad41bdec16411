package flows

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// networkStorage takes packets from the queues of one interface to a sink:
// segments on a disk, or a stream.
//
//	AF_XDP Recv → record → NVMe Send … Reap → AF_XDP Supply
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type networkStorage struct {
	common
	intake
	writer
	level
	from config.From
	book *umem.Book
	last bool // the last statistics are announced
}

// poll is one round.
func (n *networkStorage) Poll(now time.Time) (more bool) {
	n.settle(now)
	if n.failed.Load() == nil {
		open := n.below(n.intake.away()+n.writer.away(), now)
		more = n.receive(n, open, now)
		n.tick(open, now)
	}
	n.supply()
	n.publish()
	n.kick()
	n.book.Publish()
	return more
}

func (n *networkStorage) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = n.writer.FDs(dst)
	if n.stuck || n.closed {
		return dst // packets that wait are no news
	}
	return n.intake.FDs(dst)
}

// check also has statistics written.
func (n *networkStorage) check(now time.Time) (waits, ends error) {
	n.announceStatistics()
	err := n.checkNet()
	switch {
	case errors.Is(err, xdp.ErrInterfaceDown):
		return err, nil
	case err != nil:
		return nil, err
	}
	return n.look(now), nil
}

// finish empties the rings, and has everything written and durable, with statistics
// behind it.
func (n *networkStorage) finish(now time.Time, rounds uint64) (bool, error) {
	if !n.quiet(rounds) {
		return false, nil
	}
	if !n.last {
		n.announceStatistics()
		n.last = true
	}
	if !n.lastNotes(now) {
		return false, nil
	}
	return n.sink.close(now)
}

func (n *networkStorage) done() bool { return n.intake.done() || n.full() }

func (n *networkStorage) announce() []any { return n.intake.announce(n.from) }

// observe reads the counters, those of what is written first: it was received before.
func (n *networkStorage) observe(s *FlowStatus) error {
	err := n.writer.observe(s)
	n.level.observe(s)
	return errors.Join(err, n.intake.observe(s))
}

// abandon counts as lost what was received and never reached the sink because the flow
// failed, once nothing is in flight, and what the rings still held. Before, all of that
// may yet come to the disk.
func (n *networkStorage) abandon(s *FlowStatus) {
	s.Dropped["write_failed"] = 0
	if n.failed.Load() != nil {
		s.Dropped["write_failed"] = n.packets.Load() - n.unwanted.Load() - n.places.packetsWritten()
	}
	s.Dropped["not_received"], s.Waiting = s.Waiting, 0
}
