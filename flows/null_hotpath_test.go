package flows

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestNullAllocatesNothing: a flow does not allocate when it generates packets, passes them to a disk or
// nowhere, checks watermarks and records how long packets took.
func TestNullAllocatesNothing(t *testing.T) {
	for name, to := range map[string]string{
		"nowhere": "discard: true", "slot": "file: %s/cap, layout: slot, segment: {size: 64MiB}, snaplen: 96", "packed": "file: %s/cap, segment: {size: 64MiB}, snaplen: 96",
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Root(t)
			testenv.Leaks(t)
			testenv.HugePages(t, 100<<20)
			l := &lab{Pair: &testenv.Pair{}, dir: testenv.DiskDir(t)}
			if name != "nowhere" {
				to = fmt.Sprintf(to, l.dir)
			}
			runtime.LockOSThread() // the block queue belongs to the thread that first polls it
			t.Cleanup(runtime.UnlockOSThread)
			d := l.open(t, "{region: {size: 96MiB}, flows: [{name: f, from: {generate: 300}, to: {"+to+"}, watermarks: {high: 2000}}]}",
				Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Trace: traceDir(t)})
			r, err := d.Flows()[0].open()
			testenv.Must(t, err)
			poll := func() bool { return r.Flow.Poll(time.Now()) }
			defer func() { endRun(t, r, poll) }()
			testenv.Must(t, r.Flow.Begin())
			if rounds := d.Flows()[0].trace.Rounds(); rounds != 0 {
				t.Fatalf("%d rounds are recorded before the first", rounds)
			}
			until := uint64(0)
			round := func() { // as many rounds of the flow as it takes
				until += 64
				for n := uint64(0); n < until && r.Err.Get() == nil; n, _ = r.Flow.Traffic() {
					poll()
				}
			}
			for range 100 { // until the first segment is in use and every slice has grown
				round()
			}
			if n := testenv.AllocsPerRun(t, 200, round); n >= 1 || r.Err.Get() != nil {
				t.Errorf("polling allocates %v times for 64 packets (%v)", n, r.Err.Get())
			}
			if rounds := d.Flows()[0].trace.Rounds(); rounds < 300 {
				t.Errorf("%d rounds are recorded", rounds)
			}
		})
	}
}
