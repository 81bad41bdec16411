package bench

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestStolen(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"cpu  6455327 839172 1347326 4694160 54311 0 139736 116 0 0\ncpu0 1 2 3 4 5 6 7 8": 1160 * time.Millisecond,
		"cpu  6455327 839172 1347326 4694160 54311 0 139736\ncpu0 1 2 3 4 5 6 7 8":         0, // as kernels before 2.6.11 had it
		"": 0,
	} {
		if got := stolen(text); got != want {
			t.Errorf("%v stolen in %q, want %v", got, text, want)
		}
	}
	if before := Stolen(); before < 0 || Stolen() < before {
		t.Errorf("the host gave %v back", before)
	}
}

// TestNoteHost: a report has the share of all processors' time that the host took.
func TestNoteHost(t *testing.T) {
	r := example()
	r.CPUs = 2
	if got := r.share(r.stolen+time.Second, r.began.Add(2*time.Second)); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("a second of two times two is a share of %v", got)
	}
	r.stolen -= time.Hour
	before := len(r.Notes)
	if r.noteHost(); len(r.Notes) != before+1 || !strings.Contains(r.Notes[before], "The host of this machine had") {
		t.Errorf("the notes are %q", r.Notes)
	}
}
