package doctor

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/dcb"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestJudgePriority(t *testing.T) {
	mapped := dcb.Settings{PFC: 1 << 3, DSCP: map[uint8]uint8{26: 3}, Known: true, TrustsDSCP: true}
	blind := dcb.Settings{PFC: 1 << 3, DSCP: map[uint8]uint8{}, Known: true}
	for _, c := range []struct {
		class  config.Class
		s      dcb.Settings
		state  State
		detail string
	}{
		{config.Class{TrafficClass: 104}, mapped, OK, "priority 3, which the link pauses"},
		{config.Class{TrafficClass: 104, Priority: 3}, mapped, OK, "priority 3, which the link pauses"},
		{config.Class{TrafficClass: 104, Priority: 4}, mapped, Warn, "maps DSCP 26 to priority 3, and the flow has priority 4"},
		{config.Class{TrafficClass: 72}, mapped, OK, "priority 0, which the link does not pause (PFC: 3)"},
		{config.Class{Priority: 5}, mapped, OK, "priority 5, which the link does not pause (PFC: 3)"},
		{config.Class{TrafficClass: 104}, blind, Warn, "does not trust DSCPs"},
		{config.Class{Priority: 3}, blind, OK, "priority 3, which the link pauses"},
	} {
		got := judgePriority("flow", "eth1", c.class, c.s)
		if got.State != c.state || !strings.Contains(got.Detail, c.detail) || got.State == Warn && got.Remedy == "" {
			t.Errorf("%+v gives %+v", c, got)
		}
	}
}

// TestPriority: the driver of veth has no settings of priorities, which is no fault.
func TestPriority(t *testing.T) {
	testenv.Root(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	pair.A.Do(t, func() {
		got := priority("flow", "roce:"+pair.A.Ifname, config.Class{TrafficClass: 104})
		if got.State != OK || !strings.Contains(got.Detail, "no settings of priorities") {
			t.Errorf("veth gives %+v", got)
		}
	})
	if got := priority("flow", "mlx5_99", config.Class{Priority: 3}); got.State != Unknown {
		t.Errorf("a device without an interface gives %+v", got)
	}
}
