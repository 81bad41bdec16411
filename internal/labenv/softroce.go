package labenv

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// SoftRoCE sets a card up in the namespace of the process, because Linux 6.1 supports Soft-RoCE
// only there. It adds the addresses (with a prefix length), makes an RDMA device of the card and
// returns the name of the device. The end of the test removes the device and the addresses and sets
// the card down.
//
// Packets from such a device to its own address, or to the address of another card here, stay
// inside Soft-RoCE.
func SoftRoCE(t testing.TB, card string, addresses ...string) (device string) {
	t.Helper()
	softRoCEModules(t)
	if other, ok := wires[card]; ok {
		setUpHere(t, other)
	}
	link := setUpHere(t, card)
	for _, a := range addresses {
		addAddress(t, link, a)
	}
	device = "rxe_" + card
	testenv.Mustf(t, netlink.RdmaLinkAdd(device, "rxe", card), "make the Soft-RoCE device of %s", card)
	t.Cleanup(func() {
		testenv.Checkf(t, netlink.RdmaLinkDel(device), "remove the Soft-RoCE device of %s", card)
	})
	awaitGIDs(t, device, 1+len(addresses))
	return device
}

// softRoCEModules also loads the modules that Soft-RoCE would request. The kernel cannot load them
// itself, because the guest has no modprobe at the path that the kernel uses.
func softRoCEModules(t testing.TB) {
	t.Helper()
	modules := []string{"ib_uverbs", "rdma_ucm", "rdma_rxe"}
	if Kernel(t) != Linux7 {
		modules = append(modules, "crc32_generic")
	}
	for _, name := range modules {
		if _, err := os.Stat("/sys/module/" + name); err == nil {
			continue // another test loaded it
		}
		if out, err := exec.Command("modprobe", name).CombinedOutput(); err != nil {
			t.Fatalf("load the module %s: %v\n%s", name, err, out)
		}
	}
}

// wires maps each card to the card at its other end. If that card is down, packets that the kernel
// sends by itself stay in the first card until its driver reports an error.
var wires = map[string]string{"virtio0": "virtio1", "virtio1": "virtio0", "igb0": "igb1", "igb1": "igb0"}

// setUpHere sets a card up. The card may still be on its way back from a namespace of another test.
func setUpHere(t testing.TB, name string) (link netlink.Link) {
	t.Helper()
	testenv.Wait(t, 10*time.Second, "the card "+name, func() (there bool) {
		var err error
		link, err = netlink.LinkByName(name)
		return err == nil
	})
	testenv.Mustf(t, netlink.LinkSetUp(link), "set %s up", name)
	t.Cleanup(func() { _ = netlink.LinkSetDown(link) })
	return link
}

func addAddress(t testing.TB, link netlink.Link, text string) {
	t.Helper()
	addr, err := netlink.ParseAddr(text)
	if err == nil {
		addr.Flags = 0x02 // IFA_F_NODAD: it can be used at once
		err = netlink.AddrAdd(link, addr)
	}
	testenv.Mustf(t, err, "give %s the address %s", link.Attrs().Name, text)
	t.Cleanup(func() { _ = netlink.AddrDel(link, addr) })
}

// awaitGIDs waits until the device has n GIDs: those of the addresses, and the one of the address
// that IPv6 gives each card.
func awaitGIDs(t testing.TB, device string, n int) {
	t.Helper()
	testenv.Wait(t, 10*time.Second, "the GIDs of "+device, func() bool {
		for place := range n { // the table has more than a thousand entries; the first ones are used first
			if _, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gid_attrs/types/%d", device, place)); err != nil {
				return false
			}
		}
		return true
	})
}
