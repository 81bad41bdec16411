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
	// maxFragments is the most frames one packet has: MAX_SKB_FRAGS and the linear
	// part, include/linux/skbuff.h.
	maxFragments = 18
)

// run is a network → storage flow that has been opened.
type run struct {
	*networkStorage
	net     *xdp.Interface
	log     *slog.Logger
	started time.Time
	undo    cleanup // everything, while no worker polls it
}

// openNetworkStorage opens both ends of a flow and fills the rings. Nothing moves
// until a worker polls it and the interface is started.
func openNetworkStorage(c config.Flow, region *umem.Region, shared sharing, log *slog.Logger) (*run, error) {
	n := &networkStorage{book: region.NewBook("flow " + c.Name), spare: &stack{}, flush: c.To.Flush, limit: shared.limit}
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
	if err := r.openDisk(c, hands, shared, &undo); err != nil {
		return nil, err
	}
	if err := r.fill(c, hands, shared); err != nil {
		return nil, err
	}
	r.undo = undo.release()
	return r, nil
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
		r.sources = append(r.sources, source{port: port, id: uint32(i), buf: make([]umem.Frame, burst+maxFragments)})
	}
	return nil
}

func netConfig(c config.Flow, hands *umem.Holder) (xdp.Config, error) {
	x := xdp.Config{
		Interface: c.From.Interface, Holder: hands, Direction: xdp.Receive,
		Shape: umem.Shape{MultiBuffer: true}, RingSize: uint32(c.From.Ring), Timestamps: true,
		BusyPoll: xdp.BusyPoll{Time: c.From.BusyPoll},
	}
	for _, q := range c.From.Queues {
		x.Queues = append(x.Queues, uint32(q))
	}
	if c.To.Layout == config.LayoutSlot {
		x.Shape.Headroom = slotHeadroom
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
	r.output = output{region: hands.Book().Region(), every: c.To.Segment.Every, sync: c.To.Durable, flushed: true}
	if c.To.Layout == config.LayoutSlot && r.region.FrameSize() < 4096 {
		return errors.New("layout slot needs region.frame: 4096, so that a packet and what is written around it fit a frame")
	}
	if r.store, err = openStore(c.To, r.head(c, shared.application), r.log); err != nil {
		return err
	}
	undo.add(r.store.Close)
	undo.add(r.surrender)
	r.queue, err = nvme.Open(nvme.Config{Worker: hands, Name: "flow " + c.Name, Depth: writes + 4, Pieces: chainFrames, Frames: writes * chainFrames})
	if err != nil {
		return err
	}
	undo.add(r.queue.Close)
	return nil
}

// head makes the segments' heads: one interface for each queue.
func (r *run) head(c config.Flow, application string) func(pcapng.Segment) ([]byte, error) {
	section := pcapng.Section{Hardware: machine(), OS: kernel(), Application: application}
	var ifs []pcapng.Interface
	for _, s := range r.sources {
		ifs = append(ifs, pcapng.Interface{
			Name: c.From.Interface, Filter: c.From.Filter, LinkType: pcapng.LinkTypeEthernet,
			Description: fmt.Sprintf("%s queue %d", c.From.Interface, s.port.Queue()),
		})
	}
	return func(seg pcapng.Segment) ([]byte, error) { return pcapng.AppendSegmentHead(nil, section, ifs, seg) }
}

// fill takes the flow's share of the region and supplies the queues.
func (r *run) fill(c config.Flow, hands *umem.Holder, shared sharing) error {
	least := len(r.sources)*c.From.Ring + 2*chainFrames
	want := len(r.sources)*c.From.Ring*2 + 2*chainFrames
	if c.To.Layout == config.LayoutSlot {
		want += len(r.sources)*c.From.Ring + writes*chainFrames
	}
	frames := make([]umem.Frame, min(want, max(least, shared.frames)))
	got := hands.Take(frames)
	r.spare.fs = frames[:got]
	if got < least {
		return fmt.Errorf("the region has %d free frames, %d queues with rings of %d need %d at least: raise region.size or lower ring", got, len(r.sources), c.From.Ring, least)
	}
	if err := r.lay(c, hands, shared); err != nil {
		return err
	}
	for range c.From.Ring/burst + 1 {
		r.supply()
	}
	return nil
}

// lay makes the layout.
func (r *run) lay(c config.Flow, hands *umem.Holder, shared sharing) error {
	quarter := r.store.size / 4
	if c.To.Layout == config.LayoutSlot {
		r.layout = newSlot(r.region, min(chainFrames, r.queue.Limits().Frames), quarter, r.spare, &r.copied)
		return nil
	}
	extents := make([]umem.Frame, shared.extents)
	if got := hands.TakeExtents(extents); got < 2 {
		return fmt.Errorf("the region has %d free extents, layout packed needs 2 at least: raise region.extents", got)
	} else {
		extents = extents[:got]
	}
	align := uint32(pcapng.MaxAlign)
	limit := uint32(min(r.region.ExtentSize(), quarter)) &^ (align - 1)
	r.layout = newPacked(r.region, r.store.align, limit, r.spare, extents, &r.copied)
	return nil
}
