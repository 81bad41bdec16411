package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// session is a region, and a device with which all of the region is registered.
type session struct {
	options  options
	device   rdma.Device
	progress rdma.Progresser // nil: the device makes progress by itself
	port     rdma.Port
	settings connect.Settings
	domain   rdma.ProtectionDomain
	region   *umem.Region
	book     *umem.Book
	worker   *umem.Holder
	memory   rdma.MemoryRegion
	manager  cm.Manager // nil without -R
	through  cm.Conn    // nil without -R
	before   counts     // the device's counters when it was opened
	cleanup  harness.Cleanup
}

// open opens a region with memory for the test, and then the device. RoCE in software has its
// queues in the region. peer is the zero Addr if the peer is not known yet.
func open(o options, peer netip.Addr, m room) (s *session, err error) {
	s = &session{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.cleanup.Close())
		}
	}()
	if err := checkInterface(o.iface, o.device); err != nil {
		return s, err
	}
	if err := s.openRegion(m); err != nil {
		return s, err
	}
	if err := s.openDevice(); err != nil {
		return s, err
	}
	if err := s.settle(peer); err != nil {
		return s, err
	}
	return s, s.register()
}

// settle chooses the settings of queue pairs, as far as they depend on the user.
func (s *session) settle(peer netip.Addr) (err error) {
	s.settings = connect.Defaults()
	s.settings.Timeout, s.settings.TrafficClass, s.settings.SL = uint8(s.options.qpTimeout), uint8(s.options.tclass), uint8(s.options.sl)
	if s.options.mtu != 0 {
		if s.settings.MTU, err = rdma.ParseMTU(s.options.mtu); err != nil {
			return fmt.Errorf("-mtu: %w", err)
		}
	}
	return s.chooseGID(peer)
}

// register registers all of the region for local access.
func (s *session) register() (err error) {
	if s.domain, err = keep(s, func(struct{}) (rdma.ProtectionDomain, error) { return s.device.NewProtectionDomain() }, struct{}{}); err != nil {
		return err
	}
	s.memory, err = keep(s, func(a rdma.Access) (rdma.MemoryRegion, error) { return s.domain.Register(s.region, a) }, rdma.LocalWrite)
	return err
}

// checkInterface checks that the interface exists, and that it is the device's, if the device has one.
func checkInterface(iface, device string) error {
	d, err := netdev.Find(iface)
	if err == nil {
		err = d.NeedEthernet("RDMA")
	}
	if err != nil {
		return fmt.Errorf("IFACE %s: %w", iface, err)
	}
	i, err := net.InterfaceByIndex(d.Index)
	if err != nil {
		return fmt.Errorf("IFACE %s: %w", iface, err)
	}
	if i.Flags&net.FlagUp == 0 {
		return fmt.Errorf("IFACE %s is down: ip link set %s up", iface, iface)
	}
	b, err := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0")
	if of := strings.TrimSpace(string(b)); err == nil && of != d.Name {
		return fmt.Errorf("RDMA_DEV %s is a device of %s, not of IFACE %s", device, of, iface)
	}
	return nil
}

func (s *session) chooseGID(peer netip.Addr) error {
	table, err := s.device.GIDs(1)
	if err != nil {
		return err
	}
	if s.options.gid < 0 {
		if s.settings.GID, err = rdma.ChooseGID(table, peer); err != nil {
			return fmt.Errorf("choose a GID of %s: %w", s.options.device, err)
		}
		return nil
	}
	for _, e := range table {
		if e.Index == s.options.gid {
			s.settings.GID = e
			return nil
		}
	}
	return fmt.Errorf("-gid %d: that place of the table of %s is empty", s.options.gid, s.options.device)
}

// keep makes a resource that close closes.
func keep[A any, T interface{ Close() error }](s *session, make func(A) (T, error), a A) (T, error) {
	thing, err := make(a)
	if err == nil {
		s.cleanup.Then(thing.Close)
	}
	return thing, err
}
