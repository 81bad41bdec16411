package doctor

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestRDMADevice: the doctor reports a Soft-RoCE device correctly with its interface up and down,
// and leaves nothing open.
func TestRDMADevice(t *testing.T) {
	labenv.Guest(t)
	testenv.Leaks(t)
	const card, address = "virtio0", "10.79.0.1"
	device := labenv.SoftRoCE(t, card, address+"/24")
	subject := "RDMA device " + device
	r := Examine(Options{Interfaces: []string{"lo"}})
	expect(t, "library", of(t, r, "RDMA", "libibverbs"), OK, "there")
	for _, module := range []string{"ib_uverbs", "rdma_ucm", "rdma_rxe"} {
		expect(t, module, of(t, r, "RDMA", "module "+module), OK, "loaded: ")
	}
	expect(t, "devices", of(t, r, "RDMA", "devices"), OK, device)
	expect(t, "pinned memory", of(t, r, "RDMA", "pinned memory"), OK, "limit")
	expect(t, "device", of(t, r, subject, "device"), OK, "it opens")
	expect(t, "port", of(t, r, subject, "port 1"), OK, "ACTIVE, Ethernet, interface virtio0 of MTU 1500, 1024 bytes in a packet, of 4096")
	expect(t, "IPv6", of(t, r, subject, "port 1 GID 0"), OK, "fe80::")
	expect(t, "IPv4", of(t, r, subject, "port 1 GID 1"), OK, address+", RoCE v2")
	expect(t, "advice", of(t, r, subject, "port 1 advice"), Warn, "-> ip link set dev virtio0 mtu 4176")

	link, err := netlink.LinkByName(card)
	if err == nil {
		err = netlink.LinkSetDown(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	r = Examine(Options{Interfaces: []string{"lo"}})
	expect(t, "down", of(t, r, subject, "port 1"), OK, "DOWN, Ethernet")
	expect(t, "down", of(t, r, subject, "port 1 advice"), Warn, "the port is DOWN -> set its network interface up")
}
