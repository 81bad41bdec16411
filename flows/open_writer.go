package flows

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	// chainFrames is the most frames of one write in the slot layout: 256 packets
	// of 1 KiB are 384 KiB, and larger writes are not cheaper.
	chainFrames = 256
	// writes is how many writes of a flow the disk has at once.
	writes = 32
	// leastRecord is how long the record of a short packet is in the packed layout, about.
	leastRecord = 96
)

// openSink opens the sink: segments on a disk, or a stream. Frames that are free come
// from the free list, and return to it. Section and interfaces are what captures begin with.
func (w *writer) openSink(o *opening, spare *umem.FreeList, section pcapng.Section, ifs []pcapng.Interface) error {
	w.flush, w.to, w.snap.Max = o.flow.To.Flush, destination(o.flow.To), uint32(o.flow.To.Snaplen)
	for i := range ifs {
		ifs[i].SnapLen = w.snap.Max
	}
	if o.shared.stream != nil {
		return w.openStream(o, spare, section, ifs)
	}
	return w.openDisk(o, spare, section, ifs)
}

// openDisk opens the segments and the queue to them.
func (w *writer) openDisk(o *opening, spare *umem.FreeList, section pcapng.Section, ifs []pcapng.Interface) (err error) {
	to := o.flow.To
	out := &output{region: o.region, every: cmp.Or(to.Rotate.Every, to.Segment.Every), sync: to.Durable, flushed: true}
	if to.Layout == config.LayoutSlot && o.region.FrameSize() < 4096 {
		return errors.New("layout slot needs region.frame: 4096, so that a packet and what is written around it fit a frame")
	}
	head := func(seg pcapng.Segment) ([]byte, error) { return pcapng.AppendSegmentHead(nil, section, ifs, seg) }
	c := segment.Config{To: to, Head: head, Log: o.log, Manifest: o.manifest, MakeIndex: o.shared.index, Complete: o.shared.complete}
	if to.Layout == config.LayoutSlot {
		c.MostAlign = layout.InPlaceAlign
	}
	if out.store, err = segment.Open(c); err != nil {
		return err
	}
	o.undo.add(out.store.Close)
	o.undo.add(out.surrender)
	out.queue, err = nvme.Open(nvme.Config{
		Worker: o.hands, Name: "flow " + o.flow.Name, Depth: writes + 4, Pieces: chainFrames, Frames: writes * chainFrames, Targets: segment.MaxOpen,
		Passthrough: out.store.Passthrough(),
	})
	if err != nil {
		return err
	}
	o.undo.add(out.queue.Close)
	w.disk, w.sink, w.hands = out, out, o.hands
	if out.layout, err = w.lay(o, spare); err != nil {
		return err
	}
	w.layout = out.layout
	return nil
}

// openStream begins a stream.
func (w *writer) openStream(o *opening, spare *umem.FreeList, section pcapng.Section, ifs []pcapng.Interface) error {
	extents, err := o.takeExtents()
	if err != nil {
		return err
	}
	head, err := pcapng.AppendStreamHead(nil, section, ifs)
	if err != nil {
		return err
	}
	w.times = newArrivals(o.region, uint64(len(extents))*o.region.ExtentSize()/leastRecord)
	c := layout.Config{Region: o.region, Free: spare, Limit: o.region.ExtentSize(), Copies: &w.copied, SnapLen: &w.snap, Numbers: layout.Numbering{}.WithDirections(w.directions)}
	w.layout = layout.NewPacked(c, 1, uint32(c.Limit), extents)
	s, err := openPipe(o.shared.stream, head, o.region, w.layout)
	if err != nil {
		return err
	}
	o.undo.add(s.Close)
	w.sink = s
	return nil
}

// lay makes the layout of a disk.
func (w *writer) lay(o *opening, spare *umem.FreeList) (layout.Layout, error) {
	quarter := w.disk.store.Size() / 4
	c := layout.Config{Region: o.region, Free: spare, Copies: &w.copied, SnapLen: &w.snap, Numbers: numbersOf(w.disk.store).WithDirections(w.directions)}
	if o.flow.To.Layout == config.LayoutSlot {
		w.times = newArrivals(o.region, 2*writes*chainFrames)
		c.Limit = quarter
		return layout.NewInPlace(c, min(chainFrames, w.disk.queue.Limits().Frames), w.disk.store.BatchLimit(quarter)), nil
	}
	extents, err := o.takeExtents()
	if err != nil {
		return nil, err
	}
	w.times = newArrivals(o.region, uint64(len(extents))*o.region.ExtentSize()/leastRecord)
	c.Limit = min(o.region.ExtentSize(), quarter) &^ (pcapng.MaxAlign - 1)
	return layout.NewPacked(c, w.disk.store.Align(), uint32(w.disk.store.BatchLimit(c.Limit)), extents), nil
}

// leastExtents is how many extents a packed layout has at least: one is filled while
// another is written.
const leastExtents = 2

// takeExtents takes the flow's share of the extents.
func (o *opening) takeExtents() ([]umem.Frame, error) {
	extents := make([]umem.Frame, o.shared.extents)
	got := o.hands.TakeExtents(extents)
	if got < leastExtents {
		return nil, fmt.Errorf("the region has %d free extents for this flow; layout packed needs %d at least: raise region.extents", got, leastExtents)
	}
	return extents[:got], nil
}

// section is what captures say of who made them.
func (o *opening) section() pcapng.Section {
	return pcapng.Section{Comment: o.flow.To.Comment, Hardware: machine(), OS: kernel(), Application: o.shared.application}
}

// numbersOf returns how packets are numbered that go to a store: those of a ring
// have numbers, those of files have none.
func numbersOf(s *segment.Manager) layout.Numbering {
	if first, ok := s.Numbers(); ok {
		return layout.NumberFrom(first)
	}
	return layout.Numbering{}
}
