package soak

import (
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFaultsBesideOthers: while a fault lasts, flows that it does not affect keep their rate and
// lose nothing. Afterwards all flows run, and frames, grants and connections are as before.
//
// The short form has the faults that no test of a single flow has. UNIFIEDD_FAULTS=1 has all
// faults, for longer.
func TestFaultsBesideOthers(t *testing.T) {
	testenv.Long(t, "the faults take half a minute")
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) { newRig(t, f).sufferAll() })
	}
}

func (r *rig) sufferAll() {
	long := os.Getenv("UNIFIEDD_FAULTS") != ""
	for _, f := range r.faults() {
		switch {
		case long:
			r.suffer(&f, 5*time.Second)
		case f.short:
			r.suffer(&f, time.Second/2)
		}
	}
	r.leave()
}

// suffer causes a fault and checks the flows that it does not affect.
func (r *rig) suffer(f *fault, span time.Duration) {
	r.t.Helper()
	r.look()
	before, rates := r.mark(), r.rates(span)
	since := r.mark()
	f.begin(r)
	r.kept(since, span, rates, f.spared()...)
	f.mend(r)
	mended := time.Now()
	r.running(flowNames...)
	r.back(before)
	r.t.Logf("%s: as before %.1f s after it was mended", f.name, time.Since(mended).Seconds())
	r.sources.fine(r.t)
	r.sinks.fine(r.t)
}

// look verifies what the flows have written to disk so far.
func (r *rig) look() {
	r.t.Helper()
	if durable := r.flow("capture").Durable.File; durable != "" {
		r.captures.look(durable)
	}
	r.records.look(false)
}
