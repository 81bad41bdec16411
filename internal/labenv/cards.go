package labenv

import (
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Igb returns the two igb cards, which are on one wire, each set up in a namespace of
// its own and without addresses. At the end of the test they are back where they were.
func Igb(t testing.TB) *testenv.Pair { return pair(t, "igb0", "igb1") }

// VirtioNet is Igb with virtio cards. The driver of A, virtio0, may use any memory; the
// driver of B only what the emulator is told of, and so never grants zero copy.
func VirtioNet(t testing.TB) *testenv.Pair { return pair(t, "virtio0", "virtio1") }

func pair(t testing.TB, a, b string) *testenv.Pair {
	t.Helper()
	Kernel(t)
	p := &testenv.Pair{A: take(t, a), B: take(t, b)}
	Carry(t, p)
	return p
}

// take moves a card into a namespace of its own and sets it up there. When the
// namespace is deleted the kernel moves the card back, in its own time.
func take(t testing.TB, name string) testenv.End {
	t.Helper()
	var link netlink.Link
	testenv.Wait(t, 10*time.Second, "the card "+name, func() (there bool) {
		var err error
		link, err = netlink.LinkByName(name)
		return err == nil
	})
	e := testenv.End{Namespace: testenv.NewNamespace(t), Ifname: name, MAC: link.Attrs().HardwareAddr}
	ns, err := os.Open("/run/netns/" + e.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := netlink.LinkSetNsFd(link, int(ns.Fd())); err != nil {
		t.Fatalf("move %s into %s: %v", name, e.Name, err)
	}
	e.Do(t, func() { setUp(t, &e) })
	return e
}

// setUp sets a card up, without the traffic that IPv6 makes by itself.
func setUp(t testing.TB, e *testenv.End) {
	t.Helper()
	for _, scope := range []string{"all", "default", e.Ifname} {
		file := "/proc/sys/net/ipv6/conf/" + scope + "/disable_ipv6"
		if err := os.WriteFile(file, []byte("1"), 0); err != nil && !os.IsNotExist(err) {
			t.Fatalf("turn IPv6 off: %v", err)
		}
	}
	link, err := netlink.LinkByName(e.Ifname)
	if err == nil {
		e.Index = link.Attrs().Index
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Fatalf("set %s up: %v", e.Ifname, err)
	}
}

// Carry waits until both cards have a link. A card that is given a program or a
// socket loses it, a moment later, for some seconds.
func Carry(t testing.TB, p *testenv.Pair) {
	t.Helper()
	time.Sleep(time.Second)
	for _, e := range []*testenv.End{&p.A, &p.B} {
		testenv.Wait(t, 30*time.Second, e.Ifname+" to carry", func() (carries bool) {
			e.Do(t, func() {
				link, err := netlink.LinkByName(e.Ifname)
				carries = err == nil && link.Attrs().OperState == netlink.OperUp
			})
			return carries
		})
	}
}
