//go:build verbs && cgo

package transfer

import (
	"net/netip"
	"testing"

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

// TestVerbs: the tests of this package pass over a device of libibverbs. TestDevices is not among them: the guest has no
// loop devices.
func TestVerbs(t *testing.T) {
	labenv.Guest(t)
	veth := machines
	machines = overVerbs
	t.Cleanup(func() { machines = veth })
	for _, c := range []struct {
		name  string
		short bool
		f     func(*testing.T)
	}{
		{"sizes", true, TestSizes}, {"pieces", false, TestPieces}, {"sparse", true, TestSparse}, {"resumes", true, TestResumes}, {"reconnects", false, TestReconnects},
		{"offenders", false, TestOffenders}, {"ungranted", true, TestUngranted}, {"source changes", false, TestSourceChanges},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.short {
				testenv.Long(t, "make lab runs all parts")
			}
			c.f(t)
		})
	}
}
