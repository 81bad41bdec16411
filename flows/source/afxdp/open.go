package afxdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// maxFragments is more than the largest number of frames of a packet. XDP passes on at most 45
// fragments of a page (the largest MAX_SKB_FRAGS, net/Kconfig) and the linear part. The kernel
// copies that into frames that hold 1792 bytes or more.
const maxFragments = 128

// Open opens the interfaces of a flow. Their rings are empty until Fill.
func Open(e *pipeline.Env) (*Source, error) {
	s := &Source{from: e.Flow.From, limit: e.Shared.Limit, holder: e.Holder, started: time.Now()}
	if err := checkTakeOver(e.Flow.From); err != nil {
		return nil, err
	}
	warnLoopback(e.Log, e.Flow.From)
	link, err := linkType(e.Flow)
	if err != nil {
		return nil, err
	}
	x, err := interfaceConfig(e.Flow, e.Holder, link)
	if err != nil {
		return nil, err
	}
	x.Rank, x.Thread = device.Rank(e.Shared.Config, e.Flow.Name), e.Do
	if err := s.openMirror(e, &x); err != nil {
		return nil, err
	}
	names := []string{x.Interface}
	if e.Flow.From.Interfaces != nil {
		names = e.Flow.From.Interfaces
	}
	ring, err := ringLength(e, names)
	if err != nil {
		return nil, err
	}
	s.ring, x.RingSize = ring, uint32(ring)
	id := uint32(0)
	for _, name := range names {
		x.Interface = name
		if id, err = s.openInterface(e, x, id); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// openInterface opens one interface. Its first queue has the ID id in captures. It returns the ID
// for the next interface.
func (s *Source) openInterface(e *pipeline.Env, x xdp.Config, id uint32) (uint32, error) {
	name := x.Interface
	if s.mirror == nil && device.WantsInPlace(e.Shared.Config, name) {
		x.Shape.Headroom = layout.InPlaceHeadroom
	}
	one, err := e.Shared.Interfaces.Open(x)
	if err != nil {
		return id, err
	}
	e.Undo.Add(func() error { return e.Shared.Interfaces.Close(one) })
	s.net = append(s.net, one)
	if one.Link() != s.net[0].Link() {
		return id, fmt.Errorf("%w: packets of %s are %v, and those of %s are %v: make flows of them, since a capture has one link type",
			netdev.ErrLinkType, s.net[0].Name(), s.net[0].Link(), one.Name(), one.Link())
	}
	for _, port := range one.Ports() {
		e.Undo.Add(port.Close)
		b := pipeline.Batch{ID: id, Frames: make([]umem.Frame, pipeline.Burst+maxFragments)}
		s.queues = append(s.queues, queue{port: port, of: one, batch: b})
		id += clocks(one.Granted())
	}
	return id, s.openSteering(e, name)
}

// linkType returns the link type of a flow's interface. Only Ethernet interfaces can be mirrored.
func linkType(c config.Flow) (linktype.Type, error) {
	if c.From.Mirror != "" {
		return linktype.Ethernet, nil
	}
	d, err := netdev.Find(c.From.All()[0])
	switch {
	case errors.Is(err, netdev.ErrNotFound): // opening the interface returns the error
		return linktype.Ethernet, nil
	case err != nil:
		return 0, err
	}
	return d.Link, d.Unknown()
}

func interfaceConfig(c config.Flow, h *umem.Holder, link linktype.Type) (xdp.Config, error) {
	x := xdp.Config{
		Interface: c.From.Interface, Holder: h, Direction: xdp.Receive,
		Shape: umem.Shape{MultiBuffer: true}, Timestamps: true, Promiscuous: c.From.Promiscuous,
		BusyPoll: xdp.BusyPoll{Time: c.From.BusyPoll}, Alone: c.To.Place == config.PlaceHere,
		RawIP: c.Kind() != config.KindNetworkRDMA && c.Kind() != config.KindNetworkOrder, // peers, stages and rules expect Ethernet
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
	wanted, err := selection(c.From, link)
	if err != nil {
		return x, err
	}
	x.Filter, x.Rules, x.Own = wanted.Filter, wanted.Rules, wanted.Own
	if x.Own != nil && !x.Own.Fragments() {
		x.Shape.MultiBuffer = false
	}
	return x, nil
}

// MaxPacket returns the largest length of a packet on the flow's interface in bytes: its MTU, an
// Ethernet header and two VLAN tags.
func (s *Source) MaxPacket() (uint32, error) {
	link, err := netlink.LinkByName(s.from.Interface)
	if err != nil {
		return 0, fmt.Errorf("ask for the MTU of %s: %w", s.from.Interface, err)
	}
	return uint32(link.Attrs().MTU + 14 + 2*4), nil
}

// RingFrames returns the number of frames that the rings of all queues hold.
func (s *Source) RingFrames() (frames int) {
	for i := range s.queues {
		frames += s.queues[i].port.Limits().Supply
	}
	return frames
}

// Fill takes the flow's quota of frames and fills the rings. In addition to the rings' frames, the
// rest of the flow needs at least least frames, and can use at most most.
func (s *Source) Fill(e *pipeline.Env, least, most int) error {
	rings := s.RingFrames()
	least, most = least+rings, most+2*rings
	frames := make([]umem.Frame, min(most, max(least, e.Shared.Quota.Frames)))
	got := e.Holder.Take(frames)
	s.free.Push(frames[:got]...)
	s.total, s.least = got, least
	if got < least {
		return fmt.Errorf("the region has %d free frames; %d queues with rings of %d need %d at least: raise region.size or lower ring", got, len(s.queues), s.ring, least)
	}
	return s.fillRings(e)
}

// FillFrom fills the rings with frames of an attached program's memory, so that packets land there. In addition
// to the rings' frames the flow takes up to reserve: as many as the program may hold while the rings stay full. It
// takes at most share. The frames stay the flow's until it ends: Shrink gives none back.
func (s *Source) FillFrom(e *pipeline.Env, part *umem.Part, share, reserve int) error {
	least := s.RingFrames() + 2*pipeline.Burst
	frames := make([]umem.Frame, min(share, least+reserve))
	s.total = e.Holder.TakeFrom(part, frames)
	s.least, s.fixed = s.total, true
	s.free.Push(frames[:s.total]...)
	if s.total < least {
		return fmt.Errorf("the memory that program %s reads has %d free frames for this flow; %d queues with rings of %d need %d at least: raise in in attach.programs, or lower ring",
			e.Flow.To.Attach, s.total, len(s.queues), s.ring, least)
	}
	return s.fillRings(e)
}

// ZeroCopy reports whether cards write packets into the frames of the rings themselves: all packets of the queues,
// also those that the filter leaves to the host.
func (s *Source) ZeroCopy() bool { return s.net.Granted().ZeroCopy }

// fillRings gives free frames to the rings.
func (s *Source) fillRings(e *pipeline.Env) error {
	rings := s.RingFrames()
	return e.Do(func() error { // on the thread that fills the queues for other flows too
		for range rings/len(s.queues)/pipeline.Burst + 1 {
			s.Supply()
		}
		return nil
	})
}

// Interfaces describes the interfaces of a capture, one for each queue. If the card has a clock,
// each queue has a second one, for packets that the card's clock stamps.
func (s *Source) Interfaces() (all []pcapng.Interface) {
	for i := range s.queues {
		q := &s.queues[i]
		name, granted := q.of.Name(), q.of.Granted()
		if s.from.Interfaces == nil {
			name = s.from.Interface
		}
		captured, description := s.describeQueue(name, q.port.Queue())
		one := pcapng.Interface{
			Name: captured, Filter: pcapng.Shortened(s.from.Wanted()), LinkType: uint16(q.of.Link()),
			Description: description, Comment: s.from.CommentOf(slices.Index(s.net, q.of)),
		}
		all = append(all, one)
		if granted.CardClock {
			one.Description += ", the card's clock"
			one.CardClock = cardClock(name, granted)
			all = append(all, one)
		}
	}
	return all
}
