package multicast

import (
	"net/netip"
	"os/exec"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestVLAN: a group joined on a VLAN is reported with its tag.
func TestVLAN(t *testing.T) {
	labenv.Guest(t)
	if out, err := exec.Command("modprobe", "8021q").CombinedOutput(); err != nil {
		t.Fatalf("load the module 8021q: %v\n%s", err, out)
	}
	p := pair(t)
	p.B.Run(t, "ip", "link", "add", "link", p.B.Ifname, "name", "feed.7", "type", "vlan", "id", "7")
	p.B.Run(t, "ip", "link", "set", "feed.7", "up")
	h := listen(t, &p.A)
	var s Set
	p.B.Do(t, func() { must(t, s.Open([]Join{{"feed.7", any4, netip.Addr{}}, {"feed.7", ssm4, source4}})) })
	h.await(t, "vlan 7", "proto IGMP")
	h.await(t, "igmp v3 report", "239.1.2.3 to_ex")
	h.await(t, "igmp v3 report", "232.1.2.3 allow { 10.9.9.9 }")
	must(t, s.Close())
}
