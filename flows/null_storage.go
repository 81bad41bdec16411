package flows

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// nullStorage takes packets that it makes to a sink, to measure that alone: segments on a disk, or a stream.
//
//	made → record → NVMe Send … Reap → free
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type nullStorage struct {
	common
	generator
	writer
	level
	book *umem.Book
}

// openNullStorage opens both ends of a flow. Nothing moves until a worker polls it and it has begun.
func openNullStorage(o *opening) (*nullStorage, error) {
	n := &nullStorage{book: o.book}
	least, most := 2*chainFrames, 2*chainFrames
	if o.flow.To.Layout == config.LayoutSlot {
		most += writes * chainFrames
	}
	if err := n.openGenerator(o, least, most); err != nil {
		return nil, err
	}
	source := pcapng.Interface{Name: "generated", Description: "packets that unifiedd made", LinkType: pcapng.LinkTypeEthernet}
	if err := n.openSink(o, n.spare, o.section(), []pcapng.Interface{source}); err != nil {
		return nil, err
	}
	n.ends.from, n.ends.to = numa.Unknown, diskNode(o.flow.To, o.shared)
	n.Watermarks = o.flow.Watermarks
	o.complete(&n.common)
	return n, nil
}

// poll is one round.
func (n *nullStorage) Poll(now time.Time) (more bool) {
	n.settle(now)
	if n.failed.Load() == nil {
		open := n.below(n.generator.away()+n.writer.away(), now)
		more = n.generate(n, open, now)
		n.tick(open, now)
	}
	n.publish()
	n.book.Publish()
	return more
}

func (n *nullStorage) FDs(dst []unix.PollFd) []unix.PollFd { return n.writer.FDs(dst) }

func (n *nullStorage) Deadline(now time.Time) time.Time {
	return earlier(n.generator.Deadline(now), n.writer.Deadline(now))
}

func (n *nullStorage) check(now time.Time) (waits, ends error) { return n.look(now), nil }

// finish has everything written and durable.
func (n *nullStorage) finish(now time.Time, _ uint64) (bool, error) {
	if !n.idle() {
		return false, nil
	}
	return n.sink.close(now)
}

// observe reads the counters, those of what is written first: it was made before.
func (n *nullStorage) observe(s *FlowStatus) error {
	err := n.writer.observe(s)
	n.generator.observe(s)
	n.level.observe(s)
	return err
}

// abandon counts as lost what was made and not written when the flow failed.
func (n *nullStorage) abandon(s *FlowStatus) {
	n.generator.abandon(s)
	s.Dropped["write_failed"] = 0
	if n.failed.Load() != nil {
		s.Dropped["write_failed"] = n.packets.Load() - n.places.packetsWritten()
	}
}

func (n *nullStorage) shrink(part sharing) bool {
	frames, extents := n.generator.shrink(part), n.writer.shrink(part)
	return frames || extents
}

// earlier is the first of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
