package main

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// newPlace makes a Soft-RoCE device for both sides. At the end of the test, none of its resources
// may be in use.
func newPlace(t *testing.T) place {
	t.Helper()
	testenv.Leaks(t)
	const card, server = "virtio0", "10.79.0.1"
	p := softRoCE(card, labenv.SoftRoCE(t, card, server+"/24"))
	p.server, p.mtu = server, 1024
	t.Cleanup(func() { labenv.RDMAAtRest(t, p.device) })
	return p
}

// softRoCE returns a place with a Soft-RoCE device for both sides.
func softRoCE(card, device string) place {
	here, these := seat{card: card, device: device}, sizes
	if testing.Short() {
		these = []int{255}
	}
	return place{seat: here, far: here, patient: patient, whole: !testing.Short(), sizes: these, tooLong: rdma.RemoteOperation,
		sent: func(t *testing.T) uint64 { return sentPackets(t, device) }}
}

// patient has options for a busy machine, where the emulator may pause: an acknowledgement may take
// a second.
const patient = "-qp-timeout 18 "

// sentPackets returns how many packets a device has sent.
func sentPackets(t *testing.T, device string) uint64 {
	t.Helper()
	all, err := verbs.ReadCounters(device, 1)
	testenv.Must(t, err)
	for _, c := range all {
		if c.Name == "sent_pkts" {
			return c.Value
		}
	}
	t.Fatalf("%s does not count what it sends", device)
	return 0
}
