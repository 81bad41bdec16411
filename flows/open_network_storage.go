package flows

import (
	"errors"
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// maxFragments is more than the most frames one packet has. XDP passes on 45
// fragments of a page at most (what MAX_SKB_FRAGS can be, net/Kconfig) and the
// linear part; the kernel copies that into frames that hold 1792 bytes or more.
const maxFragments = 128

// openNetworkStorage opens both ends of a flow and fills the rings. Nothing moves
// until a worker polls it and the interface is started.
func openNetworkStorage(o *opening) (*networkStorage, error) {
	n := &networkStorage{from: o.flow.From, book: o.book}
	n.spare, n.limit = &umem.FreeList{}, o.shared.limit
	if err := n.openNet(o); err != nil {
		return nil, err
	}
	spare, more := 2*chainFrames, 2*chainFrames // beside those of the rings
	if o.flow.To.Layout == config.LayoutSlot {
		more += n.ringFrames() + writes*chainFrames
	}
	if err := n.fill(o, spare, more); err != nil {
		return nil, err
	}
	section, ifs := n.describeHead(o)
	n.directions = n.mirrored()
	if err := n.openSink(o, n.spare, section, ifs); err != nil {
		return nil, err
	}
	n.ends.from, n.ends.to = n.net.Node(), diskNode(o.flow.To, o.shared)
	n.Watermarks = o.flow.Watermarks
	o.complete(&n.common)
	return n, nil
}

// openNet opens the interfaces.
func (n *intake) openNet(o *opening) (err error) {
	if err := checkTakeOver(o.flow.From); err != nil {
		return err
	}
	of, err := linkOf(o.flow)
	if err != nil {
		return err
	}
	x, err := netConfig(o.flow, o.hands, of)
	if err != nil {
		return err
	}
	x.Rank, x.Thread = device.Rank(o.shared.config, o.flow.Name), o.worker.Do
	if err := n.openMirror(o, &x); err != nil {
		return err
	}
	names := []string{x.Interface}
	if o.flow.From.Interfaces != nil {
		names = o.flow.From.Interfaces
	}
	ring, err := ringLength(o, names)
	if err != nil {
		return err
	}
	n.ring, x.RingSize = ring, uint32(ring)
	id := uint32(0)
	for _, name := range names {
		x.Interface = name
		if n.mirror == nil && device.WantsInPlace(o.shared.config, name) {
			x.Shape.Headroom = layout.InPlaceHeadroom
		}
		one, err := o.shared.interfaces.Open(x)
		if err != nil {
			return err
		}
		n.net = append(n.net, one)
		if one.Link() != n.net[0].Link() {
			err = fmt.Errorf("%w: packets of %s are %v, and those of %s are %v: make flows of them, since a capture has one link type",
				netdev.ErrLinkType, n.net[0].Name(), n.net[0].Link(), one.Name(), one.Link())
		}
		o.undo.add(func() error { return o.shared.interfaces.Close(one) })
		if err != nil {
			return err
		}
		for _, port := range one.Ports() {
			o.undo.add(port.Close)
			n.sources = append(n.sources, source{port: port, of: one, id: id, buf: make([]umem.Frame, burst+maxFragments)})
			id += clocks(one.Granted())
		}
		if err := n.openSteering(o, name); err != nil {
			return err
		}
	}
	return nil
}

// linkOf is what packets of a flow's interface begin with. Copies are of Ethernet interfaces only.
func linkOf(c config.Flow) (linktype.Type, error) {
	if c.From.Mirror != "" {
		return linktype.Ethernet, nil
	}
	d, err := netdev.Find(c.From.All()[0])
	switch {
	case errors.Is(err, netdev.ErrNotFound): // for who opens it to say
		return linktype.Ethernet, nil
	case err != nil:
		return 0, err
	}
	return d.Link, d.Unknown()
}

func netConfig(c config.Flow, hands *umem.Holder, of linktype.Type) (xdp.Config, error) {
	x := xdp.Config{
		Interface: c.From.Interface, Holder: hands, Direction: xdp.Receive,
		Shape: umem.Shape{MultiBuffer: true}, Timestamps: true, Promiscuous: c.From.Promiscuous,
		BusyPoll: xdp.BusyPoll{Time: c.From.BusyPoll},
		RawIP:    c.Kind() != config.KindNetworkRDMA, // whose peers and stages expect Ethernet
	}
	for _, q := range c.From.Queues {
		x.Queues = append(x.Queues, uint32(q))
	}
	if c.To.Layout == config.LayoutSlot {
		x.Shape.Headroom = layout.InPlaceHeadroom
	}
	switch c.From.Timestamps {
	case config.TimestampsPrefer:
		x.CardClock = xdp.PreferCard
	case config.TimestampsHardware:
		x.CardClock = xdp.RequireCard
	}
	if c.From.Beside == config.BesideLibxdp {
		priority := uint32(c.From.Priority)
		x.Beside = &priority
	}
	var err error
	if x.Policy, err = xdp.ParsePolicy(string(c.From.ZeroCopy)); err != nil {
		return x, err
	}
	wanted, err := selection(c.From, of)
	if err != nil {
		return x, err
	}
	x.Filter, x.Rules, x.Own = wanted.Filter, wanted.Rules, wanted.Own
	if x.Own != nil && !x.Own.Fragments() {
		x.Shape.MultiBuffer = false
	}
	return x, nil
}

// describeHead is what captures say of where they come from: one interface for
// each queue, and where the card's clock is asked a second for packets with its times.
func (n *intake) describeHead(o *opening) (pcapng.Section, []pcapng.Interface) {
	var ifs []pcapng.Interface
	from := o.flow.From
	for i := range n.sources {
		s := &n.sources[i]
		name, granted := s.of.Name(), s.of.Granted()
		if from.Interfaces == nil {
			name = from.Interface
		}
		of, about := n.captured(name, s.port.Queue())
		one := pcapng.Interface{
			Name: of, Filter: shortened(from.Wanted()), LinkType: uint16(s.of.Link()),
			Description: about, Comment: from.CommentOf(slices.Index(n.net, s.of)),
		}
		ifs = append(ifs, one)
		if granted.CardClock {
			one.Description += ", the card's clock"
			one.CardClock = cardClock(name, granted)
			ifs = append(ifs, one)
		}
	}
	return o.section(), ifs
}

// shortened is a filter that fits a capture's head.
func shortened(filter string) string {
	const cut = " ..."
	if len(filter) <= pcapng.MaxText {
		return filter
	}
	return filter[:pcapng.MaxText-len(cut)] + cut
}

// ringFrames is how many frames the queues hold.
func (n *intake) ringFrames() (frames int) {
	for i := range n.sources {
		frames += n.sources[i].port.Limits().Supply
	}
	return frames
}

// fill takes the flow's share of the frames and supplies the queues. The rest of the flow
// has so many frames at least meanwhile, and at most.
func (n *intake) fill(o *opening, least, most int) error {
	queues := n.ringFrames()
	least, want := least+queues, most+2*queues
	frames := make([]umem.Frame, min(want, max(least, o.shared.frames)))
	got := o.hands.Take(frames)
	n.spare.Push(frames[:got]...)
	n.total, n.least, n.hands = got, least, o.hands
	if got < least {
		return fmt.Errorf("the region has %d free frames; %d queues with rings of %d need %d at least: raise region.size or lower ring", got, len(n.sources), n.ring, least)
	}
	return o.worker.Do(func() error { // where other flows fill the queues, too
		for range queues/len(n.sources)/burst + 1 {
			n.supply()
		}
		return nil
	})
}
