//go:build verbs && cgo

package stream

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

// newVerbsRig makes a rig with both sides on one device of libibverbs.
func newVerbsRig(t testing.TB) *rig {
	t.Helper()
	testenv.Leaks(t)
	const address = "10.79.0.1"
	name := labenv.SoftRoCE(t, "virtio0", address+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, name) })
	open := func(*umem.Region) (rdma.Device, error) { return providers.Open(name, roce.Config{}) }
	m := rocetest.Machine{IP: netip.MustParseAddr(address), Open: open}
	return &rig{TB: t, near: newSide(t, m), far: newSide(t, m)}
}

// TestReceiverVerbs: TestReceiver passes over a device of libibverbs.
func TestReceiverVerbs(t *testing.T) {
	labenv.Guest(t)
	g := newVerbsRig(t)
	for _, c := range receiverParts {
		t.Run(c.name, func(t *testing.T) { standsFor(t, c.name); c.f(t, g.with(t)) })
	}
}

// standsFor skips a part in the short form if other parts cover it: the guest is slow.
func standsFor(t *testing.T, part string) {
	t.Helper()
	switch part {
	case "One", "Credits", "Killed", "ComesBack", "NoCredit":
	default:
		testenv.Long(t, "make lab runs all parts")
	}
}
