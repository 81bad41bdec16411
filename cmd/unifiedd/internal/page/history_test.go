package page

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// TestHistory: a flow has the rates and losses of five minutes. What it lost before needs no attention any more, and a
// flow that begins anew has lost nothing since.
func TestHistory(t *testing.T) {
	start := time.Unix(1700000000, 0)
	s := status.Daemon{Started: start, Flows: []status.Flow{{Name: "f", Kind: "network-storage", State: status.Running, ZeroCopy: true, Dropped: map[string]uint64{"filter_dropped": 1 << 40}}}}
	f, h, now := &s.Flows[0], &History{flows: map[string]*past{}}, start
	run := func(steps int, packets, lost uint64) Flow {
		for range steps {
			now = now.Add(step)
			f.Packets += packets
			if f.Dropped["lost_missed"] += lost; lost > 0 {
				f.LostAt = now
			}
			h.add(&s, now)
		}
		return Make(&s, h, nil, Public, now).Flows[0]
	}
	severities := func() (all []status.Severity) {
		for _, one := range Make(&s, h, nil, Public, now).Findings {
			all = append(all, one.Severity)
		}
		return all
	}
	if v := run(2, 1000, 50); !slices.Equal(v.Rates, []uint64{100, 100}) || !slices.Equal(v.Losses, []uint64{50, 50}) || v.Losing != 5 || v.Recent != 100 {
		t.Errorf("after 20 s: %+v", v)
	}
	if got := severities(); !slices.Equal(got, []status.Severity{status.Error}) {
		t.Errorf("while it loses packets: %v", got)
	}
	now = now.Add(time.Second)
	f.Dropped["lost_missed"] += 11
	if v := Make(&s, h, nil, Public, now).Flows[0]; v.Losing < 5 || v.Recent != 111 {
		t.Errorf("a second after a point: %+v", v)
	}
	run(1, 1000, 0)
	if v := run(points, 2000, 0); len(v.Rates) != points || slices.Min(v.Rates) != 200 || slices.Max(v.Losses) != 0 || v.Losing != 0 || v.Recent != 0 {
		t.Errorf("after five minutes without a loss: %+v", v)
	}
	if got := severities(); !slices.Equal(got, []status.Severity{status.Info}) {
		t.Errorf("five minutes after the last loss: %v", got)
	}
	run(quietAfter, 0, 0)
	if all := Make(&s, h, nil, Public, now).Findings; all[0].Severity != status.Warning || !strings.Contains(all[0].Text, "nothing for three minutes") {
		t.Errorf("after three minutes without packets: %v", all)
	}
	f.Packets, f.Dropped = 30, map[string]uint64{}
	if v := Make(&s, h, nil, Public, now).Flows[0]; v.Losing != 0 || v.Recent != 0 {
		t.Errorf("a flow that has just begun anew: %+v", v)
	}
	if v := run(1, 10, 7); v.Rates[len(v.Rates)-1] != 4 || v.Losses[len(v.Losses)-1] != 7 {
		t.Errorf("a flow that began anew: %+v", v)
	}
	s.Flows = append(s.Flows, status.Flow{Name: "new", Packets: 1000, Dropped: map[string]uint64{"lost_missed": 20}})
	run(1, 0, 0)
	if v := Make(&s, h, nil, Public, now).Flows[1]; !slices.Equal(v.Rates, []uint64{100}) || v.Losing != 2 {
		t.Errorf("a flow of a reload: %+v", v)
	}
	s.Flows = s.Flows[1:]
	if h.add(&s, now.Add(step)); len(h.flows) != 1 {
		t.Errorf("%d flows are remembered", len(h.flows))
	}
}

// TestHistoryEnds: a history reads the status until it is closed.
func TestHistoryEnds(t *testing.T) {
	h := NewHistory(sample)
	h.Close()
	select {
	case <-h.done:
	default:
		t.Error("it goes on")
	}
}
