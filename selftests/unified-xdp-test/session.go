package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// session has a region and an interface on it, opened as a user of the packages opens them.
type session struct {
	options options
	mtu     int
	mac     [6]byte
	region  *umem.Region
	hands   []hand
	iface   *xdp.Interface
	cleanup harness.Cleanup
}

// hand has one worker's holder of frames.
type hand struct {
	book   *umem.Book
	holder *umem.Holder
}

// open makes a session. The caller closes it.
func open(o options) (s *session, err error) {
	s = &session{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.cleanup.Close())
			s = nil
		}
	}()
	queues, err := s.look()
	if err != nil {
		return s, err
	}
	if err := s.openRegion(len(queues)); err != nil {
		return s, err
	}
	return s, s.openInterface(queues)
}

// look reads the properties of an interface before it is opened, and returns the queues it may use.
func (s *session) look() (queues []uint32, err error) {
	link, err := netlink.LinkByName(s.options.iface)
	if err != nil {
		return nil, fmt.Errorf("look %s up: %w (see: ip link)", s.options.iface, err)
	}
	if err := netdev.Of(link).NeedEthernet("this test"); err != nil {
		return nil, err
	}
	a := link.Attrs()
	s.options.iface, s.mtu = a.Name, a.MTU
	if n := copy(s.mac[:], a.HardwareAddr); n != len(s.mac) {
		return nil, fmt.Errorf("%s is no Ethernet interface: its address is %q", s.options.iface, a.HardwareAddr)
	}
	if len(s.options.queues) > 0 {
		return s.options.queues, nil
	}
	for q := range uint32(max(1, a.NumRxQueues)) {
		queues = append(queues, q)
	}
	return queues, nil
}

// mostQueues is the number of queues whose rings the region can fill. An interface with more queues
// shares the frames for these.
const mostQueues = 64

// openRegion opens a region with frames for the rings of the queues.
func (s *session) openRegion(queues int) (err error) {
	o := &s.options
	perQueue := uint64(o.ring)
	if o.mode.ownPackets() {
		perQueue *= 2 // sent packets use separate frames
	}
	c := umem.Config{FrameSize: uint32(o.frame), Pages: umem.PageSize(o.pages)}
	c.Size = uint64(min(queues, mostQueues)) * perQueue * uint64(o.frame)
	if s.region, err = s.cleanup.OpenRegion(c, o.reserve, harness.MemoryRemedy); err != nil {
		return err
	}
	for n := range min(queues, runtime.NumCPU()) {
		if err := s.addHand(n); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) addHand(n int) (err error) {
	var h hand
	if h.book, h.holder, err = s.cleanup.OpenHolder(s.region, fmt.Sprintf("worker %d", n)); err != nil {
		return err
	}
	s.hands = append(s.hands, h)
	return nil
}

// openInterface opens the interface and distributes its queues among the workers.
func (s *session) openInterface(queues []uint32) (err error) {
	c := s.options.config()
	c.Holder, c.Holders = s.hands[0].holder, make(map[uint32]*umem.Holder)
	for i, q := range queues {
		c.Holders[q] = s.hands[i%len(s.hands)].holder
	}
	if s.iface, err = xdp.Open(c); err != nil {
		return err
	}
	s.cleanup.Then(s.iface.Close)
	return nil
}

// share returns how many frames each queue gets.
func (s *session) share() int { return int(s.region.Frames()) / len(s.iface.Ports()) }
