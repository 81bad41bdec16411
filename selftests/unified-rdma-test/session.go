package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/verbs"
	"github.com/unifiedd/unifiedd/umem"
)

// session is a device with a region registered whole.
type session struct {
	options  options
	device   rdma.Device
	port     rdma.Port
	settings connect.Settings
	domain   rdma.ProtectionDomain
	region   *umem.Region
	book     *umem.Book
	worker   *umem.Holder
	memory   rdma.MemoryRegion
	manager  *cm.Channel // nil without -R
	through  *cm.Conn    // likewise
	before   counts      // of the device, when it was opened
	undo     []func() error
}

// open opens the device. The peer is the zero Addr where it is not known yet.
func open(o options, peer netip.Addr) (s *session, err error) {
	s = &session{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := checkInterface(o.iface, o.device); err != nil {
		return s, err
	}
	if s.device, err = keep(s, verbs.Provider{}.Open, o.device); err != nil {
		return s, err
	}
	if s.port, err = s.device.Port(1); err != nil {
		return s, err
	}
	if s.before, err = readCounts(o.device); err != nil {
		return s, err
	}
	s.settings = connect.Defaults()
	s.settings.Timeout = uint8(o.qpTimeout)
	if o.mtu != 0 {
		if s.settings.MTU, err = rdma.ParseMTU(o.mtu); err != nil {
			return s, fmt.Errorf("-mtu: %w", err)
		}
	}
	if err := s.chooseGID(peer); err != nil {
		return s, err
	}
	s.domain, err = keep(s, func(struct{}) (rdma.ProtectionDomain, error) { return s.device.NewProtectionDomain() }, struct{}{})
	return s, err
}

// checkInterface holds the interface to be there, and to be the device's where it has one.
func checkInterface(iface, device string) error {
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return fmt.Errorf("IFACE %s: there is no such network interface (ip link lists them)", iface)
	}
	if i.Flags&net.FlagUp == 0 {
		return fmt.Errorf("IFACE %s is down: ip link set %s up", iface, iface)
	}
	b, err := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0")
	if of := strings.TrimSpace(string(b)); err == nil && of != iface {
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

// keep makes a thing that close closes.
func keep[A any, T interface{ Close() error }](s *session, make func(A) (T, error), a A) (T, error) {
	thing, err := make(a)
	if err == nil {
		s.then(thing.Close)
	}
	return thing, err
}

// then notes what close has to do.
func (s *session) then(f func() error) { s.undo = append(s.undo, f) }

// close gives everything back, in reverse.
func (s *session) close() error {
	var errs []error
	for len(s.undo) > 0 {
		last := len(s.undo) - 1
		errs = append(errs, s.undo[last]())
		s.undo = s.undo[:last]
	}
	return errors.Join(errs...)
}

// openRegion opens a region with that many extents of a size, and registers it for local
// access.
func (s *session) openRegion(extents int, size, control uint64) (err error) {
	c := umem.Config{ExtentSize: max(pow2(size), 4096), Extents: uint64(extents), Control: control}
	c.Size = max(c.ExtentSize*uint64(extents+1), 2<<20)
	if s.options.reserve {
		back, err := umem.Reserve(umem.Huge2M, -1, c.Size+control)
		if err != nil {
			return err
		}
		s.then(back)
	}
	if s.region, err = keep(s, umem.Open, c); err != nil {
		if errors.Is(err, unix.ENOMEM) {
			err = fmt.Errorf("%w (-reserve lets this program reserve huge pages)", err)
		}
		return err
	}
	s.book = s.region.NewBook("unified-rdma-test")
	s.then(s.book.Close)
	if s.worker, err = s.book.NewHolder(umem.OwnerWorker, "unified-rdma-test"); err != nil {
		return err
	}
	s.then(func() error { s.worker.Close(); return nil })
	s.memory, err = keep(s, func(a rdma.Access) (rdma.MemoryRegion, error) { return s.domain.Register(s.region, a) }, rdma.LocalWrite)
	return err
}

func pow2(n uint64) uint64 {
	p := uint64(1)
	for p < n {
		p *= 2
	}
	return p
}
