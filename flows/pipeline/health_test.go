package pipeline

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
)

// TestSilence: Check reports a disk that completes none of its operations. It does not report a disk that
// completes some or has none.
func TestSilence(t *testing.T) {
	var s Health
	start := time.Now()
	for _, step := range []struct {
		after time.Duration
		stats nvme.Stats
		says  []string
	}{
		{0, nvme.Stats{}, nil},
		{time.Hour, nvme.Stats{}, nil}, // there was nothing to do
		{time.Hour + time.Second, nvme.Stats{Counts: nvme.Counts{InFlight: 3}}, nil},
		{time.Hour + 4*time.Second, nvme.Stats{Counts: nvme.Counts{InFlight: 3}}, nil},
		{time.Hour + 7*time.Second, nvme.Stats{Counts: nvme.Counts{InFlight: 3}}, []string{"a disk has completed nothing for 7s", "3 operations"}},
		{time.Hour + 8*time.Second, nvme.Stats{Counts: nvme.Counts{InFlight: 3, Flushes: 1}}, nil},
		{time.Hour + 12*time.Second, nvme.Stats{Counts: nvme.Counts{InFlight: 3, Flushes: 1, Writes: 1}}, nil},
		{time.Hour + 20*time.Second, nvme.Stats{Counts: nvme.Counts{InFlight: 1, Flushes: 1, Writes: 1}}, []string{"1 operations"}},
		{time.Hour + 21*time.Second, nvme.Stats{Counts: nvme.Counts{Flushes: 1, Writes: 2}}, nil},
	} {
		err := s.Check(start.Add(step.after), "a disk", "packets wait", step.stats)
		if (err != nil) != (step.says != nil) {
			t.Errorf("after %v: %v", step.after, err)
		} else if err != nil {
			testenv.MessageNames(t, err.Error(), step.says)
		}
	}
}
