package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// TestTable: the table says of each metric what a scrape says of it.
func TestTable(t *testing.T) {
	before := len(Table())
	d := &latency.Distribution{Summary: latency.Summary{Count: 1}}
	text := gather(t, func(out chan<- prometheus.Metric) {
		collectFlow(out, &status.Flow{Name: "f", Kind: "network-storage", From: "eth1", FrameTimes: &status.FrameTimes{Submitted: d, Done: d}, Latency: &latency.Summary{Count: 1}, Level: &status.Watermarks{},
			Dropped: map[string]uint64{"lost_missed": 1}, DiskErrors: map[string]uint64{"EIO": 0}, Floor: &status.FreeSpace{}, Replay: &status.Replay{Lateness: d}})
		collectConfig(out, &status.Config{})
	})
	if n := len(Table()); n != before {
		t.Errorf("a scrape made the table grow from %d to %d metrics", before, n)
	}
	names := map[string]bool{}
	for _, m := range Table() {
		if names[m.Name] {
			t.Errorf("%s is in the table twice", m.Name)
		}
		names[m.Name] = true
	}
	found := 0
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		i := slices.IndexFunc(Table(), func(m Metric) bool { return m.Name == line[1] })
		if i < 0 {
			t.Errorf("%s is not in the table", line[1])
			continue
		}
		found++
		if m := Table()[i]; string(m.Kind) != line[2] {
			t.Errorf("%s is a %s, and the table says %s", m.Name, line[2], m.Kind)
		}
	}
	if found < 20 || !strings.Contains(text, "frame_latency_seconds_bucket") {
		t.Errorf("only %d metrics were collected:\n%s", found, text)
	}
}
