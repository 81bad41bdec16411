package flows

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// meanwhile is how many messages a log may have at once that are no receives, at least and
// at most: in the slot layout the disk has them where they landed.
func meanwhile(o *opening) (least, most int) {
	long := !inFrames(o.region, o.flow.From.Message)
	switch slot := o.flow.To.Layout == config.LayoutSlot; {
	case slot && long:
		return 8, 4 * writes
	case slot:
		return 2*chainFrames + 2*burst, writes * chainFrames
	case long:
		return 4, burst
	}
	return 2 * burst, 2 * burst
}

// openRDMAStorage opens a log: both its ends, and finds where it goes on.
func openRDMAStorage(o *opening) (*rdmaStorage, error) {
	l := &rdmaStorage{book: o.book, acknowledge: o.flow.To.Acknowledge}
	l.region, l.positions.log = o.region, true
	durability, err := protocol.ParseDurability(string(l.acknowledge))
	if err != nil {
		return nil, err
	}
	end, err := l.goOn(o)
	if err != nil {
		return nil, err
	}
	c := inboxConfig{durability: durability, spread: o.flow.To.Layout == config.LayoutPacked, origins: true, next: l.once.next, forgotten: l.once.forgotten}
	l.once.before = end.Sessions
	c.away, c.wish = meanwhile(o)
	if err := l.openInbox(o, c); err != nil {
		return nil, err
	}
	heads, err := l.heads(o)
	if err != nil {
		return nil, err
	}
	run, err := newRun()
	if err != nil {
		return nil, err
	}
	l.manifest = &segment.Manifest{End: end, Run: journal.Run{Number: run, Start: end.Next}, Received: l.shown[0].Load, Durable: l.places.packetsDurable}
	o.manifest = l.manifest
	source := journal.Source(o.flow.Name, end.Next, run, protocol.HeaderLen+uint32(o.flow.From.Message))
	if l.secure {
		source, l.owners = journal.Owned(source, end.Next, run), l.receiver.OwnerID
	}
	if o.flow.From.Verify {
		source = journal.Verified(source)
	}
	if err := l.openSink(o, heads, o.section(), []pcapng.Interface{source}); err != nil {
		return nil, err
	}
	if s, ok := l.layout.(*layout.InPlace); ok && heads != l.spare {
		s.ReturnExtents(l.spare)
	}
	if err := l.fits(o); err != nil {
		return nil, err
	}
	l.supply()
	l.ends.from, l.ends.to = numa.Unknown, diskNode(o.flow.To, o.shared)
	l.Watermarks = o.flow.Watermarks
	o.complete(&l.common)
	return l, nil
}

// goOn finds where the log goes on, before what an earlier run left is mended.
func (l *rdmaStorage) goOn(o *opening) (journal.End, error) {
	end, err := journal.Tail(cmp.Or(o.flow.To.Device, o.flow.To.File))
	if err != nil {
		return end, err
	}
	for _, gap := range end.Gaps {
		o.log.Error("the log lacks what the disk had called durable (does the disk, or its controller, obey flushes?)", "what", gap)
	}
	l.before, l.lost = end.Next-1, end.Lost
	return end, nil
}

// newRun draws the number of a run of a log.
func newRun() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw the number of this run: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// heads are the frames for what is written in front of messages: those of messages, or
// others where these land in extents.
func (l *rdmaStorage) heads(o *opening) (*umem.FreeList, error) {
	if inFrames(o.region, o.flow.From.Message) || o.flow.To.Layout != config.LayoutSlot {
		return l.spare, nil
	}
	heads := make([]umem.Frame, 2*writes)
	if n := o.hands.Take(heads); n < len(heads) {
		return nil, fmt.Errorf("the region has %d free frames and not %d: raise region.size", n, len(heads))
	}
	return umem.NewFreeList(heads), nil
}

// fits reports messages that are too long for a batch of the layout.
func (l *rdmaStorage) fits(o *opening) error {
	most := l.disk.store.Size() / 4
	if o.flow.To.Layout == config.LayoutPacked {
		most = min(most, o.region.ExtentSize())
	}
	need := uint64(pcapng.PacketBlockLen(protocol.HeaderLen+uint32(o.flow.From.Message)+pcapng.NumberLen, layout.InPlaceAlign)) + 2*uint64(l.disk.store.Align())
	if need > most {
		return fmt.Errorf("a message of %d bytes needs %d in a batch, which has %d at most: a quarter of segment.size and, with layout packed, region.extent. Raise them, or lower message",
			o.flow.From.Message, need, most)
	}
	return nil
}
