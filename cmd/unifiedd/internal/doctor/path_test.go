package doctor

import (
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
	here.Do(t, func() {
		all := pathRoutes("peer a", "roce:"+here.Ifname, &p)
		if len(all) != 3 || all[0].State != OK || all[1].State != OK {
			t.Fatalf("%+v", all)
		}
		if c := all[2]; c.State != Warn || !strings.Contains(c.Detail, "leave by "+here.Ifname) || !strings.Contains(c.Remedy, "dev "+other.Ifname) {
			t.Errorf("%+v", c)
		}
	})
}
