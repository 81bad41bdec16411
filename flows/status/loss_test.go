package status

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestRemedies: docs/reference/reasons.md has each remedy, in the row of its reason.
func TestRemedies(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason, remedy := range remedies {
		found := false
		for line := range strings.Lines(string(text)) {
			found = found || strings.Contains(line, "`"+reason+"`") && strings.HasSuffix(line, "| "+remedy+" |\n")
		}
		if !found {
			t.Errorf("the document does not have %s for %s", remedy, reason)
		}
	}
}

// TestProblems: what is wrong with a flow, the worst first. What is dropped on purpose is not.
func TestProblems(t *testing.T) {
	fine := Flow{Name: "f", State: Running, Dropped: map[string]uint64{"filter_dropped": 7, "lost_ring_full": 0}, Sends: &Sends{Peers: []Peer{{Name: "p", State: "connected", Error: "an earlier one"}}}}
	if all := fine.Problems(); all != nil || len(fine.Lost()) != 0 {
		t.Errorf("a flow without a problem has %v", all)
	}
	ill := Flow{
		Name: "f", State: Failed, Error: "no interface", Stalls: 1,
		Dropped: map[string]uint64{"lost_ring_full": 1, "lost_no_frames": 3, "duplicate": 9}, DiskErrors: map[string]uint64{"EIO": 2},
		Sends: &Sends{Peers: []Peer{{Address: "10.0.0.9:1", State: "connecting", Error: "refused", Dropped: map[string]uint64{"drop_oldest": 4}}}},
	}
	var got []string
	for _, p := range ill.Problems() {
		got = append(got, p.What+" -> "+p.Remedy)
	}
	want := []string{
		"failed: no interface -> unifiedd start f",
		"lost 3: lost_no_frames -> the rings had no empty frame, since the flow's end is slower than its source: use a faster disk or a larger region",
		"lost 1: lost_ring_full -> the worker polled the ring too late: use a larger from.ring, a shorter sleep, or a CPU for the worker alone",
		"peer 10.0.0.9:1 is connecting: refused -> ",
		"lost 4 to peer 10.0.0.9:1: drop_oldest -> ",
		"2 writes or flushes failed: EIO -> see the log",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ill.NextStart = time.Now()
	if p := ill.Problems()[0]; !strings.Contains(p.Remedy, "started again") {
		t.Errorf("a flow that starts again: %+v", p)
	}
}
