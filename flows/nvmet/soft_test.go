package nvmet

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce"
	rocecm "github.com/unifiedd/unifiedd/rdma/roce/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	softNQN  = "nqn.2026-01.com.example:served"
	softHost = "nqn.2026-01.com.example:host"
)

// newSoftRig makes a rig on RoCE in software, and a machine for hosts at the other end of its wire.
func newSoftRig(t *testing.T) (*rig, *station) {
	t.Helper()
	r, s, _ := newSoftPair(t)
	return r, s
}

func newSoftPair(t *testing.T) (*rig, *station, *testenv.Pair) {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	r := &rig{T: t, listen: pair.B.IP.String() + ":4420"}
	r.openRegion(32<<20, 12)
	device, manager := openSoft(r, &pair.B, r.region)
	var err error
	r.endpoint, err = stream.OpenEndpoint(device, r.region)
	r.must(err)
	t.Cleanup(func() { r.check(r.endpoint.Close()) })
	r.manager = manager
	return r, softStation(r, &pair.A), pair
}

// softStation makes a machine for hosts on RoCE in software.
func softStation(r *rig, e *testenv.End) *station {
	r.Helper()
	return newStation(r, func(s *rig, region *umem.Region) (rdma.Device, cm.Manager) { return openSoft(s, e, region) })
}

// openSoft opens RoCE in software on an interface.
func openSoft(r *rig, e *testenv.End, region *umem.Region) (d rdma.Device, m cm.Manager) {
	r.Helper()
	var err error
	e.Do(r, func() { d, err = rocetest.Open(region, e.Ifname) })
	r.must(err)
	r.Cleanup(func() { r.check(d.Close()) })
	m, err = rocecm.Open(d.(*roce.Device), rocecm.Config{})
	r.must(err)
	r.Cleanup(func() { r.check(m.Close()) })
	return d, m
}

// station is a machine for hosts. Targets may reach its memory if they have its key.
type station struct {
	*rig
	target netip.AddrPort
	id     string // host identifier of 16 bytes; empty: one that all stations have
	pd     rdma.ProtectionDomain
	memory rdma.MemoryRegion
	next   uint64 // offset in the region after which all memory is unused
	end    uint64
}

// newStation makes a station. open opens a device with its region, and the device's connection
// manager.
func newStation(of *rig, open func(*rig, *umem.Region) (rdma.Device, cm.Manager)) *station {
	of.Helper()
	s := &station{rig: &rig{T: of.T}, target: netip.MustParseAddrPort(of.listen)}
	const extents = 8
	s.openRegion(16<<20, extents)
	book := s.region.NewBook("hosts")
	s.Cleanup(func() { s.check(book.Close()) })
	hands, err := book.NewHolder(umem.OwnerWorker, "hosts")
	s.must(err)
	s.Cleanup(func() { hands.Close() })
	all := make([]umem.Frame, extents)
	if n := hands.TakeExtents(all); n < extents {
		s.Fatalf("%d extents", n)
	}
	s.Cleanup(func() { hands.Give(all) })
	slices.SortFunc(all, func(x, y umem.Frame) int { return cmp.Compare(x.Addr, y.Addr) })
	s.next, s.end = all[0].Addr, all[extents-1].Addr+s.region.ExtentSize()
	if s.end-s.next != extents*s.region.ExtentSize() {
		s.Fatal("the extents have others between them")
	}
	device, manager := open(s.rig, s.region)
	s.manager = manager
	s.pd, err = device.NewProtectionDomain()
	s.must(err)
	s.Cleanup(func() { s.check(s.pd.Close()) })
	s.memory, err = s.pd.Register(s.region, rdma.EveryAccess)
	s.must(err)
	s.Cleanup(func() { s.check(s.memory.Close()) })
	return s
}

// room returns the offset of n unused bytes, zeroed.
func (s *station) room(n uint64) uint64 {
	s.Helper()
	at := s.next
	if s.next += (n + 4095) &^ 4095; s.next > s.end {
		s.Fatal("the hosts' machine has no more memory")
	}
	clear(s.region.At(at, n))
	return at
}

// bytes returns memory from room.
func (s *station) bytes(at, n uint64) []byte { return s.region.At(at, n) }

// zram opens a disk in memory, with blocks of 4096 bytes.
func (r *rig) zram(size uint64) *nvme.Target {
	r.Helper()
	d, err := nvme.OpenTarget(nvme.TargetConfig{Path: testenv.Zram(r, size)})
	r.must(err)
	r.Cleanup(func() { r.check(d.Close()) })
	return d
}

// errGone says that a queue's connection has ended.
var errGone = errors.New("the queue is gone")
