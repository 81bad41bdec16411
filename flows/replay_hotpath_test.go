package flows

import (
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestReplayAllocatesNothing: a replay does not allocate when it reads captures, finds packets, filters them
// and sends them at a pace.
func TestReplayAllocatesNothing(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	path := l.write(t, "in.pcapng", true, testenv.Stream(&l.A, &l.B, 5000, 0, 4000, 600))
	runtime.LockOSThread() // the block queue belongs to the thread that first polls it
	t.Cleanup(runtime.UnlockOSThread)
	d := l.open(t, l.replaying("slot", "file: "+path+", loop: endless, filter: udp", "pace: 500000pps"), Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Trace: traceDir(t)})
	var r *pipeline.Run
	var err error
	l.A.Do(t, func() { r, err = d.Flows()[1].open() })
	testenv.Must(t, err)
	poll := func() bool { return r.Poller.Poll(time.Now()) } // with the flight recorder
	defer func() { endRun(t, r, poll) }()
	testenv.Must(t, r.Flow.Begin())
	until := uint64(0)
	round := func() {
		until += 64
		for n := uint64(0); n < until && r.Err.Get() == nil; n, _ = r.Flow.Traffic() {
			poll()
		}
	}
	for range 100 {
		round()
	}
	if n := testenv.AllocsPerRun(t, 200, round); n >= 1 || r.Err.Get() != nil {
		t.Errorf("polling allocates %v times for 64 packets (%v)", n, r.Err.Get())
	}
	recorder := d.Flows()[1].trace
	s, err := trace.Read(filepath.Join(d.options.Trace, d.Flows()[1].Name()+trace.Suffix))
	testenv.Must(t, err)
	if packets, bytes := r.Flow.Traffic(); s.Packets != packets || s.Bytes != bytes || recorder.Rounds() == 0 || s.Step != trace.Between || s.Rounds < uint64(len(s.Events)) {
		t.Errorf("the recorder has %d packets, %d bytes, %d rounds, step %v; the flow has sent %d packets, %d bytes", s.Packets, s.Bytes, s.Rounds, s.Step, packets, bytes)
	}
}
