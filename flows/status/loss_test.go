package status

import (
	"os"
	"strings"
	"testing"
)

// TestReasons: docs/reference/reasons.md has the cause and the remedy of each reason, in its row.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range Reasons {
		found := false
		for line := range strings.Lines(string(text)) {
			found = found || strings.Contains(line, "`"+name+"`") && strings.Contains(strings.ReplaceAll(line, "`", ""), r.String())
		}
		if !found || r.Cause == "" || r.Remedy == "" {
			t.Errorf("the document does not have %q for %s", r, name)
		}
	}
}

// TestLost: what is dropped on purpose is not lost, and what peers did not get is.
func TestLost(t *testing.T) {
	f := Flow{Dropped: map[string]uint64{"filter_dropped": 7, "lost_ring_full": 0, "odd": 3}, Sends: &Sends{Peers: []Peer{{Dropped: map[string]uint64{"oldest": 4}}}}}
	if lost := f.Lost(); len(lost) != 1 || lost["odd"] != 3 || f.LostInAll() != 7 {
		t.Errorf("lost %v, in all %d", lost, f.LostInAll())
	}
}

// TestWhy: the rings run out of frames because the end is slow, or because the worker came late.
func TestWhy(t *testing.T) {
	for _, c := range []struct {
		f      Flow
		reason string
		want   string
	}{
		{Flow{Stalls: 1, Ring: 512}, "lost_no_frames", Reasons["lost_no_frames"].String()},
		{Flow{Level: &Watermarks{Pauses: 1}}, "lost_no_frames", Reasons["lost_no_frames"].String()},
		{Flow{Level: &Watermarks{}}, "lost_no_frames", Reasons["lost_ring_full"].String()},
		{Flow{Stalls: 1, Ring: 2048}, "lost_ring_full", "the worker came too late to the ring: use a larger from.ring than 2048, a shorter sleep, or a CPU for the worker alone"},
		{Flow{}, "odd", "odd: docs/reference/reasons.md has each reason"},
	} {
		if got := c.f.Why(c.reason).String(); got != c.want {
			t.Errorf("%s: %s", c.reason, got)
		}
	}
}
