package xdp

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTagsAreKept: while an interface is open, its card leaves VLAN tags in packets. Afterwards the
// setting is as before.
func TestTagsAreKept(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	says := func(feature string) bool {
		return strings.Contains(pair.B.Run(t, "ethtool", "-k", pair.B.Ifname), "rx-vlan-offload: "+feature)
	}
	strips := func() bool { return says("on") }
	set := func(on bool) {
		pair.B.Run(t, "ethtool", "-K", pair.B.Ifname, "rxvlan", map[bool]string{true: "on", false: "off"}[on])
	}
	if was := strips(); pair.IsCard() { // which other tests use, too
		defer set(was)
	}
	for _, before := range []bool{true, false} {
		if before && pair.IsCard() && says("off [fixed]") {
			continue // a virtio card leaves tags in its packets with any setting
		}
		set(before)
		g := newRig(t, small())
		i := g.open(&pair.B, Config{Direction: Receive})
		if strips() || i.Granted().TagsStripped {
			t.Errorf("tags are taken out while it is open (before: %v)", before)
		}
		testenv.Must(t, i.Close())
		if strips() != before {
			t.Errorf("tags were taken out before: %v, and afterwards: %v", before, strips())
		}
	}
}
