package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPathRoutes: doctor warns of a path whose address is reached over another interface than the path's.
func TestPathRoutes(t *testing.T) {
	testenv.Root(t)
	first := testenv.NewSwitch(t, 2, testenv.PairOptions{})
	second := testenv.SecondSwitch(t, first, testenv.PairOptions{})
	here, other := first[0], second[0]
	p := config.Peer{Address: first[1].IP.String() + ":7471", Paths: []config.Path{
		{RDMA: "roce:" + other.Ifname, Address: second[1].IP.String() + ":7471"},
		{RDMA: "roce:" + other.Ifname, Address: first[1].IP.String() + ":7472"},
	}}
	group := config.Peer{Address: p.Address, Others: []string{p.Address}, Paths: []config.Path{{RDMA: p.Paths[0].RDMA, Address: p.Paths[0].Address, Others: []string{p.Address}}}}
	here.Do(t, func() {
		all := pathRoutes("peer a", "roce:"+here.Ifname, &p)
		if len(all) != 3 || all[0].State != OK || all[1].State != OK {
			t.Fatalf("%+v", all)
		}
		if c := all[2]; c.State != Warn || !strings.Contains(c.Detail, "leave by "+here.Ifname) || !strings.Contains(c.Remedy, "dev "+other.Ifname) {
			t.Errorf("%+v", c)
		}
		if all := pathRoutes("peer b", "roce:"+here.Ifname, &group); len(all) != 4 || all[1].State != OK || all[2].State != OK || all[3].State != Warn {
			t.Errorf("a group: %+v", all)
		}
	})
}

// TestMemberRoutes: doctor warns of a path to a member of a group whose address is reached over another interface.
func TestMemberRoutes(t *testing.T) {
	testenv.Root(t)
	first := testenv.NewSwitch(t, 3, testenv.PairOptions{})
	second := testenv.SecondSwitch(t, first, testenv.PairOptions{})
	member := func(i int, e *testenv.End) config.Replica { // e has the second path's address for clients
		return config.Replica{
			Name: string(rune('a' + i)), Address: fmt.Sprintf("%s:7491", first[i].IP), Clients: fmt.Sprintf("%s:7471", first[i].IP),
			Paths: []config.ReplicaPath{{Address: fmt.Sprintf("%s:7491", second[i].IP), Clients: fmt.Sprintf("%s:7472", e.IP)}},
		}
	}
	c := grouped()
	f := &c.Flows[0]
	f.To.Replicas.Members = []config.Replica{member(0, second[0]), member(1, second[1]), member(2, first[2])}
	first[0].Do(t, func() {
		if all := memberRoutes(f); all != nil {
			t.Errorf("members with one path: %+v", all)
		}
		f.From.RDMA, f.From.Paths = "roce:"+first[0].Ifname, []config.Path{{RDMA: "roce:" + second[0].Ifname}}
		all := memberRoutes(f)
		if len(all) != 5 {
			t.Fatalf("%+v", all)
		}
		for i, c := range all[:4] {
			if c.State != OK || c.Name != "member "+string("bbcc"[i]) {
				t.Errorf("%+v", c)
			}
		}
		if c := all[4]; c.State != Warn || c.Name != "member c" || !strings.Contains(c.Detail, "leave by "+first[0].Ifname) || !strings.Contains(c.Remedy, "dev "+second[0].Ifname) {
			t.Errorf("%+v", c)
		}
	})
}
