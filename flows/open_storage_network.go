package flows

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// openStorageNetwork opens both ends of a flow. Nothing is sent until it has begun.
func openStorageNetwork(e *pipeline.Env) (*pipeline.Run, error) {
	s := &storageNetwork{err: e.Err, log: e.Log, book: e.Book}
	s.reel.region, s.egress.region = e.Region, e.Region
	var err error
	if s.reel.all, err = openCaptures(e, e.Flow.From.Captures()); err != nil {
		return nil, err
	}
	for i := range s.reel.all {
		s.unpacked += uint64(s.reel.all[i].copied)
	}
	if err := s.openReel(e); err != nil {
		return nil, err
	}
	if err := s.openEgress(e); err != nil {
		return nil, err
	}
	return pipeline.NewRun(e, s, numa.OfPath(s.reel.all[0].name), s.egress.net.Node()), nil
}

// openReel opens the queue to the disk.
func (s *storageNetwork) openReel(e *pipeline.Env) (err error) {
	extents := make([]umem.Frame, max(e.Shared.Quota.Extents, leastReel+1))
	got := e.Holder.TakeExtents(extents)
	if got < leastReel+1 {
		return fmt.Errorf("the region has %d free extents for this flow; captures are read into %d at least, and one is kept: raise region.extents", got, leastReel)
	}
	extents = extents[:got]
	r := &s.reel
	if r.queue, err = nvme.Open(nvme.Config{Worker: e.Holder, Name: "flow " + e.Flow.Name, Depth: got, Targets: len(r.all)}); err != nil {
		return err
	}
	e.Undo.Add(r.queue.Close)
	for i := range r.all {
		if r.all[i].number, err = r.queue.Add(r.all[i].target); err != nil {
			return err
		}
	}
	r.loops = e.Flow.From.Loop - 1
	if e.Flow.From.Loop == config.Endless {
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
func (s *storageNetwork) openEgress(env *pipeline.Env) (err error) {
	e, to := &s.egress, env.Flow.To
	x := xdp.Config{
		Interface: to.Interface, Holder: env.Holder, Queues: []uint32{0}, Direction: xdp.Send, Lent: true,
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
	expr, err := config.ParseFilter(env.Flow.From.Filter, card.Link)
	if err != nil {
		return err
	}
	if expr != nil {
		e.match, e.whole = expr.Matcher(), make([]byte, capfile.MaxLen)
	}
	if e.net, err = xdp.Open(x); err != nil {
		return err
	}
	env.Undo.Add(e.net.Close)
	e.port = e.net.Ports()[0]
	env.Undo.Add(e.port.Close)
	s.reel.port = e.port
	limits := e.port.Limits()
	if e.longest = limits.Message; limits.Frames > 2 { // where it lies in two extents it has two parts more
		e.longest = min(e.longest, uint64(limits.Frames-2)*longestPart)
	}
	e.port.Lend([]umem.Frame{{Addr: e.bounds.from}})
	e.pace = pacer{pace: to.Pace, most: to.MaxGap}
	e.spin, e.late, e.limit = to.Spin, to.Late, env.Shared.Limit
	e.batch, e.turns = make([]umem.Frame, 0, pipeline.Burst*e.port.Limits().Frames+1), make([]time.Time, 0, pipeline.Burst)
	return nil
}
