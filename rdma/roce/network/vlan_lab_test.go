package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// TestResolveVLANs: routes from addresses of VLANs, and of VLANs on VLANs, have their tags, MTU and
// MAC.
func TestResolveVLANs(t *testing.T) {
	labenv.Guest(t)
	testenv.Leaks(t)
	vlanModule(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	for _, e := range []*testenv.End{&p.A, &p.B} {
		host := e.IP.String()[len("10.77.0."):]
		e.Run(t, "ip", "link", "add", "v5", "link", e.Ifname, "type", "vlan", "id", "5", "protocol", "802.1ad", "egress-qos-map", "0:3")
		e.Run(t, "ip", "link", "add", "v6", "link", "v5", "type", "vlan", "id", "6")
		e.Run(t, "ip", "link", "add", "v7", "link", "v6", "type", "vlan", "id", "7")
		e.Run(t, "ip", "link", "set", "v6", "address", "02:77:00:00:06:0"+host, "mtu", "1400")
		for _, v := range []string{"v5", "v6", "v7"} {
			e.Run(t, "ip", "address", "add", "10.77."+v[1:]+"."+host+"/24", "dev", v)
			e.Run(t, "ip", "link", "set", v, "up")
		}
	}
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	outer := wire.Tag{Type: 0x88a8, TCI: 3<<13 | 5}
	w := resolve(t, i, "10.77.5.1", "10.77.5.2")
	if w.Tags != [2]wire.Tag{outer} || w.DestinationMAC != MAC(p.B.MAC) || w.MTU != 1500 {
		t.Errorf("on a VLAN: %+v", w)
	}
	w = resolve(t, i, "10.77.6.1", "10.77.6.2")
	if w.Tags != [2]wire.Tag{outer, {Type: 0x8100, TCI: 6}} || w.MTU != 1400 ||
		w.SourceMAC.String() != "02:77:00:00:06:01" || w.DestinationMAC.String() != "02:77:00:00:06:02" {
		t.Errorf("on a VLAN of a VLAN: %+v", w)
	}
	if n := len(i.GIDs()); n != 3 {
		t.Errorf("%d GIDs, want 3: three tags are too many for a packet: %v", n, i.GIDs())
	}
	p.A.Run(t, "ip", "link", "set", "v6", "down")
	testenv.Wait(t, 5*time.Second, "the VLAN to be down", func() bool {
		_, err := tryResolve(t, i, "10.77.6.1", "10.77.6.2")
		return errors.Is(err, errInterfaceDown)
	})
	k := kept(t, i, "10.77.5.1", "10.77.5.2")
	p.A.Run(t, "ip", "link", "del", "v5")
	for range 2 {
		if c := next(t, i, GIDRemoved); c.GID.Interface == p.A.Index {
			t.Errorf("%+v is not an address of the VLANs that went", c.GID)
		}
	}
	next(t, i, RouteLost)
	_, err := k.Route()
	wantError(t, "without its VLAN", err, errSource)
	p.A.Run(t, "ip", "link", "add", "v9", "link", p.A.Ifname, "address", "02:77:00:00:09:01", "type", "vlan", "id", "9")
	p.A.Run(t, "ip", "address", "add", "10.77.9.1/24", "dev", "v9")
	if c := next(t, i, GIDAdded); c.GID.GID != gid("10.77.9.1") || c.GID.Index != 1 {
		t.Errorf("%+v, want place 1", c.GID)
	}
}

func vlanModule(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("modprobe", "8021q").CombinedOutput(); err != nil {
		t.Fatalf("load the module 8021q: %v\n%s", err, out)
	}
}

// TestSameAsSoftRoCE: the table has the same GIDs as the kernel's Soft-RoCE on the interface and on
// a VLAN.
func TestSameAsSoftRoCE(t *testing.T) {
	labenv.Guest(t)
	vlanModule(t)
	device := labenv.SoftRoCE(t, "virtio0", "10.79.0.1/24", "fd79::1/64")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v\n%s", args, err, out)
		}
	}
	run("link", "add", "v5", "link", "virtio0", "type", "vlan", "id", "5")
	t.Cleanup(func() { run("link", "del", "v5") })
	run("address", "add", "10.79.5.1/24", "dev", "v5")
	run("link", "set", "v5", "up")
	i, err := Open("virtio0")
	testenv.Must(t, err)
	defer i.Close()
	var ours, kernels []string
	defer func() { t.Logf("ours %q, the kernel's %q", ours, kernels) }()
	testenv.Wait(t, 10*time.Second, "the same GIDs", func() bool {
		ours, kernels = nil, kernelGIDs(t, device)
		for _, e := range i.GIDs() {
			l, err := net.InterfaceByIndex(e.Interface)
			testenv.Must(t, err)
			ours = append(ours, fmt.Sprintf("%v %s %v", e.GID, l.Name, e.Type))
		}
		slices.Sort(ours)
		return len(ours) == 5 && slices.Equal(ours, kernels)
	})
}

// kernelGIDs returns the GID table of an RDMA device of the kernel, sorted.
func kernelGIDs(t *testing.T, device string) (all []string) {
	t.Helper()
	port := "/sys/class/infiniband/" + device + "/ports/1/"
	for n := range 16 {
		kind, err := os.ReadFile(fmt.Sprint(port, "gid_attrs/types/", n))
		if err != nil {
			continue // a free entry
		}
		text, err1 := os.ReadFile(fmt.Sprint(port, "gids/", n))
		on, err2 := os.ReadFile(fmt.Sprint(port, "gid_attrs/ndevs/", n))
		if err := errors.Join(err1, err2); err != nil {
			continue // it was removed just now
		}
		g := netip.MustParseAddr(strings.TrimSpace(string(text))).Unmap()
		all = append(all, fmt.Sprintf("%v %s %s", g, strings.TrimSpace(string(on)), strings.TrimSpace(string(kind))))
	}
	slices.Sort(all)
	return all
}
