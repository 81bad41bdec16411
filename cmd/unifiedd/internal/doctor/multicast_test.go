package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/multicast"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestQuerier: the doctor warns of a network without a querier, names one that is there, and says why it does not
// know.
func TestQuerier(t *testing.T) {
	testenv.Root(t)
	e := testenv.NewSwitch(t, 1, testenv.PairOptions{IPv6: true})[0]
	f := config.NewFlow("feed")
	f.From.Interface, f.To.File = e.Ifname, "/captures/feed"
	for _, group := range []string{"239.1.1.1", "239.1.1.2", "ff15::1"} {
		f.From.Join = append(f.From.Join, config.Join{Group: netip.MustParseAddr(group)})
	}
	f.From.Join = append(f.From.Join, config.Join{Group: netip.MustParseAddr("239.1.1.1"), Interface: "absent.7"})
	c := config.Default()
	c.Flows = []config.Flow{f}
	examine := func() *Report {
		r := &Report{}
		e.Do(t, func() { r.addMulticast(needs{Config: c, given: true}) })
		if len(r.Sections) != 1 || len(r.Sections[0].Checks) != 3 {
			t.Fatalf("the checks are %+v", r.Sections)
		}
		expect(t, "an interface that is not there", r.Sections[0].Checks[0], Unknown, "ip link add link PARENT name absent.7")
		return r
	}
	silent := examine().Sections[0].Checks
	expect(t, "no querier of IGMP", silent[1], Warn, "nobody has asked")
	expect(t, "no querier of MLD", silent[2], Warn, "enable a querier")
	e.Query(t)
	heard := examine().Sections[0].Checks
	expect(t, "a querier of IGMP", heard[1], OK, "by IGMPv")
	expect(t, "a querier of MLD", heard[2], OK, "by MLDv")
	refused := listening{e.Ifname, false}.judge(multicast.Querier{}, errors.Join(fmt.Errorf("open: %w", unix.EPERM)))
	expect(t, "without rights", refused, Unknown, "CAP_NET_RAW")
}
