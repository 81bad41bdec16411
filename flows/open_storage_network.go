package flows

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// openStorageNetwork opens both ends of a flow. Nothing is sent until it has begun.
func openStorageNetwork(o *opening) (*storageNetwork, error) {
	s := &storageNetwork{book: o.book}
	s.reel.region, s.egress.region = o.region, o.region
	var err error
	if s.reel.all, err = openCaptures(o, o.flow.From.Captures()); err != nil {
		return nil, err
	}
	for i := range s.reel.all {
		s.unpacked += uint64(s.reel.all[i].copied)
	}
	if err := s.openReel(o); err != nil {
		return nil, err
	}
	if err := s.openEgress(o); err != nil {
		return nil, err
	}
	s.ends.from, s.ends.to = numa.OfPath(s.reel.all[0].name), s.net.Node()
	o.complete(&s.common)
	return s, nil
}

// openReel opens the queue to the disk.
func (s *storageNetwork) openReel(o *opening) (err error) {
	extents := make([]umem.Frame, max(o.shared.extents, leastReel+1))
	got := o.hands.TakeExtents(extents)
	if got < leastReel+1 {
		return fmt.Errorf("the region has %d free extents for this flow; captures are read into %d at least, and one is kept: raise region.extents", got, leastReel)
	}
	extents = extents[:got]
	r := &s.reel
	if r.queue, err = nvme.Open(nvme.Config{Worker: o.hands, Name: "flow " + o.flow.Name, Depth: got, Targets: len(r.all)}); err != nil {
		return err
	}
	o.undo.add(r.queue.Close)
	for i := range r.all {
		if r.all[i].number, err = r.queue.Add(r.all[i].target); err != nil {
			return err
		}
	}
	r.loops = o.flow.From.Loop - 1
	if o.flow.From.Loop == config.Endless {
		r.loops = config.Endless
	}
	r.left = r.loops
	s.openSeam(extents[0])
	r.begin(extents[1:])
	return nil
}

// openSeam cuts an extent into pieces for packets that are copied.
func (s *storageNetwork) openSeam(extent umem.Frame) {
	e := &s.egress
	e.bounds.from, e.bounds.to = extent.Addr, extent.Addr+s.reel.region.ExtentSize()
	for at := e.bounds.from; at < e.bounds.to; at += longestPart {
		e.seam.Push(umem.Frame{Addr: at})
	}
}

// openEgress opens the interface.
func (s *storageNetwork) openEgress(o *opening) (err error) {
	e, to := &s.egress, o.flow.To
	x := xdp.Config{
		Interface: to.Interface, Holder: o.hands, Queues: []uint32{0}, Direction: xdp.Send, Lent: true,
		Shape: umem.Shape{MultiBuffer: true, Unaligned: true}, RingSize: uint32(to.Ring),
	}
	if x.Policy, err = xdp.ParsePolicy(string(to.ZeroCopy)); err != nil {
		return err
	}
	card, err := netdev.Find(to.Interface)
	if errors.Is(err, netdev.ErrNotFound) { // for who opens it to say
		card, err = netdev.Device{Name: to.Interface, Link: linktype.Ethernet, Known: true}, nil
	}
	if err = errors.Join(err, card.Sends()); err != nil {
		return err
	}
	x.RawIP, e.link = true, uint32(card.Link)
	if err := s.reel.checkLinks(card); err != nil {
		return err
	}
	expr, err := parseFilter(o.flow.From.Filter, card.Link)
	if err != nil {
		return err
	}
	if expr != nil {
		e.match, e.whole = expr.Matcher(), make([]byte, capfile.MaxLen)
	}
	if e.net, err = xdp.Open(x); err != nil {
		return err
	}
	o.undo.add(e.net.Close)
	e.port = e.net.Ports()[0]
	o.undo.add(e.port.Close)
	s.reel.port = e.port
	limits := e.port.Limits()
	if e.longest = limits.Message; limits.Frames > 2 { // where it lies in two extents it has two parts more
		e.longest = min(e.longest, uint64(limits.Frames-2)*longestPart)
	}
	e.port.Lend([]umem.Frame{{Addr: e.bounds.from}})
	e.pace = pacer{Pace: to.Pace, most: to.MaxGap}
	e.spin, e.late, e.limit = to.Spin, to.Late, o.shared.limit
	e.batch, e.turns = make([]umem.Frame, 0, burst*e.port.Limits().Frames+1), make([]time.Time, 0, burst)
	return nil
}
