package disk

import (
	"cmp"
	"errors"
	"path/filepath"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// minRecord is the approximate length of a short packet's record in the packed layout, in bytes.
const minRecord = 96

// Config is what a writer needs in addition to the configuration of its flow.
type Config struct {
	Free       *umem.FreeList // of the source: frames come from it and return to it
	Heads      *umem.FreeList // frames for block headers before packets in extents; nil: Free
	Interfaces []pcapng.Interface
	Directions []pcapng.Direction         // of packets, by interface; nil: unknown
	Statistics func() []pcapng.Statistics // of the source; nil: none
	Manifest   *segment.Manifest          // of a log; nil: a capture
	Ring       *layout.Ring               // of a packet socket, whose blocks are written from where they are; nil: frames of the region
	Records    *layout.Records            // headers of messages whose payloads alone are in frames; nil: they have their own

	Gather        bool // packets wait in a batch while the disk is at work
	GatherFlushes bool // a flush counts as work
}

// FramesInFlight returns how many frames of the source the disk has at once, for writes in place.
func FramesInFlight(to config.To) int {
	if to.Layout == config.LayoutSlot {
		return layout.MaxWrites * layout.MaxWriteFrames
	}
	return 0
}

// Node returns the NUMA node of the disk that a flow writes to; numa.Unknown for a stream.
func Node(e *pipeline.Env) int {
	to := e.Flow.To
	switch {
	case e.Shared.Stream != nil:
		return numa.Unknown
	case to.Device != "":
		return numa.OfPath(to.Device)
	}
	return numa.OfPath(filepath.Dir(to.File))
}

// New returns a writer. It has no output until Open.
func New() *Writer { return &Writer{} }

// Open opens the output: segments on a disk, or the stream.
func (w *Writer) Open(e *pipeline.Env, c Config) error {
	to := e.Flow.To
	w.err, w.flush, w.to, w.snapLen.Max = e.Err, to.Flush, pipeline.Destination(to), uint32(to.Snaplen)
	w.statistics, w.gather, w.gatherFlushes = c.Statistics, c.Gather, c.GatherFlushes
	for i := range c.Interfaces {
		c.Interfaces[i].SnapLen = w.snapLen.Max
	}
	if c.Manifest != nil {
		w.durable = c.Manifest.Changed
	}
	if e.Shared.Stream != nil {
		return w.openStream(e, c)
	}
	return w.openSegments(e, c)
}

// openSegments opens the segments and the queue to them.
func (w *Writer) openSegments(e *pipeline.Env, c Config) (err error) {
	to := e.Flow.To
	out := &segmentWriter{region: e.Region, every: cmp.Or(to.Rotate.Every, to.Segment.Every), sync: to.Durable, flushed: true}
	if to.Layout == config.LayoutSlot && e.Region.FrameSize() < 4096 {
		return errors.New("layout slot needs region.frame: 4096, so that a packet and its pcapng block fit a frame")
	}
	section := e.Section()
	s := segment.Config{
		To: to, Log: e.Log, Manifest: c.Manifest, MakeIndex: e.Shared.MakeIndex, Complete: e.Shared.Complete, Newest: w.progress.newest,
		Head: func(seg pcapng.Segment) ([]byte, error) {
			return pcapng.AppendSegmentHead(nil, section, c.Interfaces, seg)
		},
	}
	if to.Layout == config.LayoutSlot {
		s.MostAlign = layout.InPlaceAlign
	}
	if out.manager, err = segment.Open(s); err != nil {
		return err
	}
	e.Undo.Add(out.manager.Close)
	e.Undo.Add(out.abandon)
	out.queue, err = nvme.Open(nvme.Config{
		Worker: e.Holder, Name: e.Name(), Depth: layout.MaxWrites + 4, Pieces: layout.MaxWriteFrames, Frames: layout.MaxWrites * layout.MaxWriteFrames,
		Targets: segment.MaxOpen, Passthrough: out.manager.Passthrough(), Outside: c.outside(),
	})
	if err != nil {
		return err
	}
	e.Undo.Add(out.queue.Close)
	w.segments, w.out = out, out
	if c.Ring == nil {
		w.holder = e.Holder
	}
	if out.layout, err = w.newLayout(e, c); err != nil {
		return err
	}
	w.layout = out.layout
	return nil
}

// newLayout returns the layout for a disk.
func (w *Writer) newLayout(e *pipeline.Env, c Config) (layout.Layout, error) {
	manager := w.segments.manager
	quarter := manager.Size() / 4
	l := w.layoutConfig(e, c)
	if first, ok := manager.Numbers(); ok {
		l.Numbers = layout.NumberFrom(first)
	}
	l.Numbers = l.Numbers.WithDirections(c.Directions)
	if c.Ring != nil {
		return w.ringLayout(e, c, l, manager.Align())
	}
	if e.Flow.To.Layout == config.LayoutSlot {
		w.times = newLatencyTracker(e.Region, 2*layout.MaxWrites*layout.MaxWriteFrames)
		l.Limit = quarter
		frames := min(layout.MaxWriteFrames, w.segments.queue.Limits().Frames)
		in := layout.NewInPlace(l, frames, manager.BatchLimit(quarter))
		if c.Heads != nil {
			in.ReturnExtents(c.Free)
		}
		return in, nil
	}
	extents, err := e.TakeExtents(e.Shared.Quota.Extents)
	if err != nil {
		return nil, err
	}
	w.times = newLatencyTracker(e.Region, uint64(len(extents))*e.Region.ExtentSize()/minRecord)
	l.Limit = min(e.Region.ExtentSize(), quarter) &^ (pcapng.MaxAlign - 1)
	return layout.NewPacked(l, manager.Align(), uint32(manager.BatchLimit(l.Limit)), extents), nil
}

// outside is the memory of the ring, for the queue.
func (c *Config) outside() nvme.Outside {
	if c.Ring == nil {
		return nvme.Outside{}
	}
	return nvme.Outside{Memory: c.Ring.Memory, Block: c.Ring.Block}
}

// ringLayout returns the layout for the blocks of a packet socket. The kernel has kept a block open for
// as long as packets may wait, so no block waits here.
func (w *Writer) ringLayout(e *pipeline.Env, c Config, l layout.Config, align uint32) (layout.Layout, error) {
	extents, err := e.TakeExtents(pipeline.MinExtents)
	if err != nil {
		return nil, err
	}
	w.flush, w.times = 0, newBatchTracker()
	l.Limit = e.Region.ExtentSize()
	w.ring = layout.NewInRing(l, c.Ring, align, extents)
	return w.ring, nil
}

func (w *Writer) layoutConfig(e *pipeline.Env, c Config) layout.Config {
	free := c.Free
	if c.Heads != nil {
		free = c.Heads
	}
	return layout.Config{Region: e.Region, Free: free, Copies: &w.copied, SnapLen: &w.snapLen, Records: c.Records}
}

// openStream opens a stream.
func (w *Writer) openStream(e *pipeline.Env, c Config) error {
	head, err := pcapng.AppendStreamHead(nil, e.Section(), c.Interfaces)
	if err != nil {
		return err
	}
	if w.layout, err = w.streamLayout(e, c); err != nil {
		return err
	}
	out, err := openStream(e.Shared.Stream, head, e.Region, c.Ring, w.layout)
	if err != nil {
		return err
	}
	e.Undo.Add(out.Close)
	w.out = out
	return nil
}

// streamLayout returns the layout for a stream.
func (w *Writer) streamLayout(e *pipeline.Env, c Config) (layout.Layout, error) {
	l := w.layoutConfig(e, c)
	if c.Ring != nil {
		return w.ringLayout(e, c, l, 1)
	}
	extents, err := e.TakeExtents(e.Shared.Quota.Extents)
	if err != nil {
		return nil, err
	}
	w.times = newLatencyTracker(e.Region, uint64(len(extents))*e.Region.ExtentSize()/minRecord)
	l.Limit, l.Numbers = e.Region.ExtentSize(), l.Numbers.WithDirections(c.Directions)
	return layout.NewPacked(l, 1, uint32(l.Limit), extents), nil
}
