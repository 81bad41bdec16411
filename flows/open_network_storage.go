package flows

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

const (
	// chainFrames is the most frames of one write in the slot layout: 256 packets
	// of 1 KiB are 384 KiB, and larger writes are not cheaper.
	chainFrames = 256
	// writes is how many writes of a flow the disk has at once.
	writes = 32
	// maxFragments is more than the most frames one packet has. XDP passes on 45
	// fragments of a page at most (what MAX_SKB_FRAGS can be, net/Kconfig) and the
	// linear part; the kernel copies that into frames that hold 1792 bytes or more.
	maxFragments = 128
)

// run is a flow that has been opened.
type run struct {
	*networkStorage
	net     *xdp.Interface
	disk    *output // nil for a stream
	log     *slog.Logger
	started time.Time
	nodes   struct{ card, disk int } // NUMA nodes of both ends
	silence silence                  // of the disk; the watcher's
	undo    cleanup                  // everything, while no worker polls it
}

// openNetworkStorage opens both ends of a flow and fills the rings. Nothing moves
// until a worker polls it and the interface is started.
func openNetworkStorage(c config.Flow, region *umem.Region, shared sharing, log *slog.Logger) (*run, error) {
	n := &networkStorage{book: region.NewBook("flow " + c.Name), flush: c.To.Flush}
	n.spare, n.limit = &stack{}, shared.limit
	r := &run{networkStorage: n, log: log, started: time.Now()}
	var undo cleanup
	defer undo.run()
	undo.add(n.book.Close)
	hands, err := n.book.NewHolder(umem.OwnerWorker, "flow "+c.Name)
	if err != nil {
		return nil, err
	}
	undo.add(func() error { hands.Close(); return nil })
	if err := r.openNet(c, hands, &undo); err != nil {
		return nil, err
	}
	if err := r.fill(c, hands, shared); err != nil {
		return nil, err
	}
	if err := r.openSink(c, hands, shared, &undo); err != nil {
		return nil, err
	}
	r.nodes.card, r.nodes.disk = r.net.Node(), diskNode(c.To, shared)
	r.undo = undo.release()
	return r, nil
}

// openSink opens the other end: segments on a disk, or a stream.
func (r *run) openSink(c config.Flow, hands *umem.Holder, shared sharing, undo *cleanup) error {
	if shared.stream != nil {
		return r.openStream(c, hands, shared, undo)
	}
	return r.openDisk(c, hands, shared, undo)
}

// openNet opens the interface.
func (r *run) openNet(c config.Flow, hands *umem.Holder, undo *cleanup) (err error) {
	if err := checkTakeOver(c.From); err != nil {
		return err
	}
	x, err := netConfig(c, hands)
	if err != nil {
		return err
	}
	if r.net, err = xdp.Open(x); err != nil {
		return err
	}
	undo.add(r.net.Close)
	for i, port := range r.net.Ports() {
		undo.add(port.Close)
		r.sources = append(r.sources, source{port: port, id: uint32(i) * clocks(r.net.Granted()), buf: make([]umem.Frame, burst+maxFragments)})
	}
	return nil
}

func netConfig(c config.Flow, hands *umem.Holder) (xdp.Config, error) {
	x := xdp.Config{
		Interface: c.From.Interface, Holder: hands, Direction: xdp.Receive,
		Shape: umem.Shape{MultiBuffer: true}, RingSize: uint32(c.From.Ring), Timestamps: true, Promiscuous: c.From.Promiscuous,
		BusyPoll: xdp.BusyPoll{Time: c.From.BusyPoll},
	}
	for _, q := range c.From.Queues {
		x.Queues = append(x.Queues, uint32(q))
	}
	if c.To.Layout == config.LayoutSlot {
		x.Shape.Headroom = slotHeadroom
	}
	switch c.From.Timestamps {
	case config.TimestampsPrefer:
		x.CardClock = xdp.PreferCard
	case config.TimestampsHardware:
		x.CardClock = xdp.RequireCard
	}
	var err error
	if x.Policy, err = xdp.ParsePolicy(string(c.From.ZeroCopy)); err != nil {
		return x, err
	}
	if c.From.Filter != "" {
		if x.Filter, err = filter.Parse(c.From.Filter); err != nil {
			return x, fmt.Errorf("filter %q: %w", c.From.Filter, err)
		}
	}
	return x, nil
}

// openDisk opens the segments and the queue to them.
func (r *run) openDisk(c config.Flow, hands *umem.Holder, shared sharing, undo *cleanup) (err error) {
	o := &output{region: hands.Book().Region(), every: c.To.Segment.Every, sync: c.To.Durable, flushed: true}
	if c.To.Layout == config.LayoutSlot && o.region.FrameSize() < 4096 {
		return errors.New("layout slot needs region.frame: 4096, so that a packet and what is written around it fit a frame")
	}
	section, ifs := r.describeHead(c, shared)
	head := func(seg pcapng.Segment) ([]byte, error) { return pcapng.AppendSegmentHead(nil, section, ifs, seg) }
	if o.store, err = openStore(c.To, head, r.log); err != nil {
		return err
	}
	undo.add(o.store.Close)
	undo.add(o.surrender)
	o.queue, err = nvme.Open(nvme.Config{
		Worker: hands, Name: "flow " + c.Name, Depth: writes + 4, Pieces: chainFrames, Frames: writes * chainFrames, Targets: segments,
		Passthrough: o.store.passthrough(),
	})
	if err != nil {
		return err
	}
	undo.add(o.queue.Close)
	r.disk, r.sink = o, o
	if o.layout, err = r.lay(c, hands, shared, o); err != nil {
		return err
	}
	r.layout = o.layout
	return nil
}

// openStream begins a stream.
func (r *run) openStream(c config.Flow, hands *umem.Holder, shared sharing, undo *cleanup) error {
	region := hands.Book().Region()
	extents, err := takeExtents(hands, shared)
	if err != nil {
		return err
	}
	section, ifs := r.describeHead(c, shared)
	head, err := pcapng.AppendStreamHead(nil, section, ifs)
	if err != nil {
		return err
	}
	r.layout = newPacked(region, 1, uint32(region.ExtentSize()), r.spare, extents, &r.copied)
	s, err := openStream(shared.stream, head, region, r.layout)
	if err != nil {
		return err
	}
	undo.add(s.Close)
	r.sink = s
	return nil
}

// describeHead is what captures say of where they come from: one interface for
// each queue, and where the card's clock is asked a second for packets with its times.
func (r *run) describeHead(c config.Flow, shared sharing) (pcapng.Section, []pcapng.Interface) {
	var ifs []pcapng.Interface
	granted := r.net.Granted()
	for _, s := range r.sources {
		one := pcapng.Interface{
			Name: c.From.Interface, Filter: shortened(c.From.Filter), LinkType: pcapng.LinkTypeEthernet,
			Description: fmt.Sprintf("%s queue %d", c.From.Interface, s.port.Queue()),
		}
		ifs = append(ifs, one)
		if granted.CardClock {
			one.Description += ", the card's clock"
			one.CardClock = cardClock(c.From.Interface, granted)
			ifs = append(ifs, one)
		}
	}
	return pcapng.Section{Hardware: machine(), OS: kernel(), Application: shared.application}, ifs
}

// shortened is a filter that fits a capture's head.
func shortened(filter string) string {
	const cut = " ..."
	if len(filter) <= pcapng.MaxText {
		return filter
	}
	return filter[:pcapng.MaxText-len(cut)] + cut
}

// fill takes the flow's share of the frames and supplies the queues.
func (r *run) fill(c config.Flow, hands *umem.Holder, shared sharing) error {
	each := r.sources[0].port.Limits().Supply // what a queue holds
	queues := len(r.sources) * each
	least := queues + 2*chainFrames
	want := 2*queues + 2*chainFrames
	if c.To.Layout == config.LayoutSlot {
		want += queues + writes*chainFrames
	}
	frames := make([]umem.Frame, min(want, max(least, shared.frames)))
	got := hands.Take(frames)
	r.spare.fs = frames[:got]
	if got < least {
		return fmt.Errorf("the region has %d free frames; %d queues with rings of %d need %d at least: raise region.size or lower ring", got, len(r.sources), c.From.Ring, least)
	}
	for range each/burst + 1 {
		r.supply()
	}
	return nil
}

// lay makes the layout of a disk.
func (r *run) lay(c config.Flow, hands *umem.Holder, shared sharing, o *output) (layout, error) {
	quarter, numbers := o.store.size/4, o.store.numbering()
	if c.To.Layout == config.LayoutSlot {
		s := newSlot(o.region, min(chainFrames, o.queue.Limits().Frames), quarter, r.spare, &r.copied)
		s.numbers = numbers
		return s, nil
	}
	extents, err := takeExtents(hands, shared)
	if err != nil {
		return nil, err
	}
	limit := uint32(min(o.region.ExtentSize(), quarter)) &^ (pcapng.MaxAlign - 1)
	p := newPacked(o.region, o.store.align, limit, r.spare, extents, &r.copied)
	p.numbers = numbers
	return p, nil
}

// takeExtents takes the flow's share of the extents.
func takeExtents(hands *umem.Holder, shared sharing) ([]umem.Frame, error) {
	extents := make([]umem.Frame, shared.extents)
	got := hands.TakeExtents(extents)
	if got < 2 {
		return nil, fmt.Errorf("the region has %d free extents for this flow; layout packed needs 2 at least: raise region.extents", got)
	}
	return extents[:got], nil
}
