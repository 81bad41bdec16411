//go:build verbs && cgo

package blocks

import (
	"net/netip"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// overVerbs returns two machines on one device of libibverbs.
func overVerbs(t testing.TB) (near, far rocetest.Machine) {
	t.Helper()
	const address = "10.79.0.1"
	name := labenv.SoftRoCE(t, "virtio0", address+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, name) })
	m := rocetest.Machine{IP: netip.MustParseAddr(address), Open: func(*umem.Region) (rdma.Device, error) { return providers.Open(name, roce.Config{}) }}
	return m, m
}

// TestVerbs: the tests of this package pass over a device of libibverbs, with a disk of the given
// size on NVMe.
func TestVerbs(t *testing.T) {
	labenv.Guest(t)
	veth, file := machines, diskPath
	machines, diskPath = overVerbs, func(t testing.TB, size uint64) string { return labenv.Map(t, size).Path }
	t.Cleanup(func() { machines, diskPath = veth, file })
	for _, c := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"reads", TestReads}, {"read", TestRead}, {"cache", TestCache}, {"order", TestOutOfOrder}, {"many clients", TestManyClients}, {"events", TestEvents},
		{"refused", TestRefused}, {"offenders", TestOffenders}, {"beyond the window", TestBeyondWindow}, {"vanish", TestVanish}, {"strangers", TestStrangers},
		{"failing disk", testFailingDisk},
	} {
		t.Run(c.name, func(t *testing.T) { standsFor(t, c.name); c.f(t) })
	}
}

// standsFor skips a part in the short form if other parts cover it: the guest is slow.
func standsFor(t *testing.T, part string) {
	t.Helper()
	switch part {
	case "read", "cache", "vanish", "failing disk":
	default:
		testenv.Long(t, "make lab runs all parts")
	}
}

// testFailingDisk: while a device fails, the server refuses requests and ends no client.
func testFailingDisk(t *testing.T) {
	var m *labenv.Mapped
	diskPath = func(t testing.TB, size uint64) string { m = labenv.Map(t, size); return m.Path }
	region, c := small()
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	u := g.near.newCustomer(v, ClientConfig{}, 1, 1)
	u.get(0, u.frames[0], 4096)
	m.Fail(t)
	for _, f := range []umem.Frame{u.frames[0], u.extents[0]} {
		u.submit(Read{Offset: 1 << 20, Frame: f})
		if d := u.await(1)[0]; d.Err != protocol.DiskError {
			t.Errorf("%+v", d)
		}
	}
	m.Mend(t)
	u.get(1<<20, u.extents[0], nearExtent)
	if st := v.settled(); st.Refused[protocol.DiskError] != 2 || st.Ended != 0 {
		t.Errorf("%+v", st)
	}
}
