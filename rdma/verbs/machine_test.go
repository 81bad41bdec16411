package verbs

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

func TestAdvice(t *testing.T) {
	v2 := []rdma.GIDEntry{{Type: rdma.RoCE2}}
	for name, c := range map[string]struct {
		port FoundPort
		says []string
	}{
		"all is well": {FoundPort{Port: rdma.Port{Active: true, LinkLayer: rdma.LinkEthernet, ActiveMTU: rdma.MTU4096, MaxMTU: rdma.MTU4096}, GIDs: v2,
			Interface: "eth0", InterfaceMTU: 9000}, nil},
		"small MTU": {FoundPort{Port: rdma.Port{Active: true, LinkLayer: rdma.LinkEthernet, ActiveMTU: rdma.MTU1024, MaxMTU: rdma.MTU4096}, GIDs: v2,
			Interface: "eth0", InterfaceMTU: 1500}, []string{"ip link set dev eth0 mtu 4176"}},
		"MTU too small": {FoundPort{Port: rdma.Port{Active: true, LinkLayer: rdma.LinkEthernet, ActiveMTU: rdma.MTU4096, MaxMTU: rdma.MTU4096}, GIDs: v2,
			Interface: "eth0", InterfaceMTU: 1500}, []string{"does not carry: raise it"}},
		"down": {FoundPort{Port: rdma.Port{State: "DOWN", LinkLayer: rdma.LinkEthernet}, Interface: "eth0"},
			[]string{"ip link set dev eth0 up", "no address for RoCE v2"}},
		"no subnet manager": {FoundPort{Port: rdma.Port{State: "INIT", LinkLayer: rdma.LinkInfiniBand}}, []string{"opensm"}},
	} {
		c.port.advise()
		if len(c.port.Advice) != len(c.says) {
			t.Errorf("%s: %q", name, c.port.Advice)
			continue
		}
		for i, want := range c.says {
			if !strings.Contains(c.port.Advice[i], want) {
				t.Errorf("%s: %q, want %q in it", name, c.port.Advice[i], want)
			}
		}
	}
}

// TestHostileNames: a device name from a user cannot lead to files outside of the device's
// directory.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../../etc", "a/b"} {
		if _, err := ReadGIDs(name, 1); err == nil {
			t.Errorf("%q is a device", name)
		}
		if _, err := ReadCounters(name, 1); err == nil {
			t.Errorf("%q is a device", name)
		}
	}
}
