//go:build lab

package network

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// TestResolveVLANs: addresses of VLANs, and of VLANs on VLANs, bring their tags, MTU and MAC.
func TestResolveVLANs(t *testing.T) {
	testenv.Leaks(t)
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
}
