package flows

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// traceDir returns a directory in memory for a flight recorder.
func traceDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "flows-test-")
	testenv.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "control.trace")
}

// TestNoteLosses: a loss is recorded when it begins, when it has doubled, and when it has ended; and nothing that a
// filter drops.
func TestNoteLosses(t *testing.T) {
	d, err := trace.Open(traceDir(t), "1", 64)
	testenv.Must(t, err)
	defer d.Close()
	r, err := d.Recorder("f")
	testenv.Must(t, err)
	var l losses
	quiet := slog.New(slog.DiscardHandler)
	for _, n := range []uint64{0, 5, 6, 9, 11, 12, 12, 12, 13} {
		l.note(r, quiet, &status.Flow{Dropped: map[string]uint64{"lost_ring_full": n, "filter_dropped": 100 * n}}, time.Now())
	}
	l.note(r, quiet, &status.Flow{DiskErrors: map[string]uint64{"EIO": 2}, Sends: &status.Sends{Peers: []status.Peer{{Dropped: map[string]uint64{"drop_oldest": 3}}, {Dropped: map[string]uint64{"drop_oldest": 4}}}}}, time.Now())
	s, err := trace.Read(filepath.Join(d.Path(), "f"+trace.Suffix))
	testenv.Must(t, err)
	var got []string
	for _, n := range s.Notes {
		got = append(got, fmt.Sprintf("%s %s %d", n.Kind, n.Text, n.Value))
	}
	want := []string{"lost lost_ring_full 5", "lost lost_ring_full 6", "lost lost_ring_full 1", "lost lost_ring_full 1", "disk_error EIO 2", "peer_lost drop_oldest 7"}
	if !slices.Equal(got, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestLogLosses: losses are logged when they begin, each time when they have doubled, and when they have ended, with the
// reason and what to do. What is dropped on purpose is not.
func TestLogLosses(t *testing.T) {
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "remedy" && a.Value.String() != "" {
			return slog.Attr{} // the remedies are compared with the documents
		}
		return a
	}}))
	var l losses
	now, before := time.Now(), uint64(0)
	for _, n := range []uint64{0, 5, 6, 9, 10, 10, 12, 12, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 31} { // each second
		now = now.Add(time.Second)
		if more := l.note(nil, log, &status.Flow{Dropped: map[string]uint64{"lost_ring_full": n, "filter_dropped": 100 * n}}, now); more != (n > before) {
			t.Errorf("after %d, at %d, there are more: %v", before, n, more)
		}
		before = n
	}
	want := `level=WARN msg="packets or messages are lost" reason=lost_ring_full lost=5
level=WARN msg="packets or messages are still lost" reason=lost_ring_full lost=10
level=WARN msg="packets or messages are still lost" reason=lost_ring_full lost=30
level=WARN msg="no more packets or messages are lost" reason=lost_ring_full lost=30
level=WARN msg="packets or messages are lost" reason=lost_ring_full lost=1
`
	if text.String() != want {
		t.Errorf("the log has\n%s\nwant\n%s", &text, want)
	}
}

// TestRecorderAcrossRuns: a flow that stops and starts again has one file, with its states; a reload that removes the
// flow leaves the file. A recorder that cannot be opened keeps no flow from running, and the status says why.
func TestRecorderAcrossRuns(t *testing.T) {
	testenv.Leaks(t)
	l := &lab{Pair: &testenv.Pair{}, dir: testenv.DiskDir(t)}
	text := "{region: {size: 8MiB, pages: ordinary}, flows: [{name: f, from: {generate: 300, rate: 1000}, to: {discard: true}}]}"
	dir := traceDir(t)
	d := l.open(t, text, Options{Trace: dir})
	f := d.Flows()[0]
	for range 2 {
		testenv.Must(t, f.Start())
		testenv.Wait(t, 10*time.Second, "packets", func() bool { return f.Status().Packets > 10 })
		testenv.Must(t, f.Stop())
	}
	s, err := trace.Read(filepath.Join(dir, "f"+trace.Suffix))
	testenv.Must(t, err)
	var states []string
	for _, n := range s.Notes {
		states = append(states, n.Text)
	}
	if !slices.Equal(states, []string{"running", "stopped", "running", "stopped"}) || s.Step != trace.Stopped || len(s.Events) < 4 {
		t.Errorf("states %q, step %v, %d events", states, s.Step, len(s.Events))
	}
	if st := d.Status().Trace; st == nil || st.Directory != dir || st.Error != "" || st.Events != 4096 {
		t.Errorf("status %+v", st)
	}
	other := &lab{Pair: &testenv.Pair{}, dir: l.dir}
	second := other.open(t, text, Options{Trace: dir}) // the first daemon has it
	testenv.Must(t, second.Start())
	if st := second.Status().Trace; st == nil || !strings.Contains(st.Error, "another daemon") {
		t.Errorf("status of the second daemon %+v", st)
	}
}

// BenchmarkRecorder is a round of 64 generated packets to nowhere, with and without the flight recorder. Rounds with
// and without alternate in one flow, so that what else the machine does, and where the memory is, disturbs both;
// more-% is the median of how much more time the recorder takes.
func BenchmarkRecorder(b *testing.B) {
	c := (&lab{Pair: &testenv.Pair{}}).parsed(b, "{region: {size: 8MiB, pages: ordinary}, flows: [{name: f, from: {generate: 300}, to: {discard: true}}]}")
	d, err := Open(c, Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Trace: traceDir(b)})
	testenv.Must(b, err)
	defer d.Close()
	r, err := d.Flows()[0].open()
	testenv.Must(b, err)
	defer func() { endRun(b, r, func() bool { return r.Flow.Poll(time.Now()) }) }()
	testenv.Must(b, r.Flow.Begin())
	p, recorder := r.Flow.(*pipeline.Pipeline), d.Flows()[0].trace
	const rounds = 200
	measure := func(with *trace.Recorder) float64 {
		p.Record(with)
		begun := time.Now()
		for range rounds {
			p.Poll(time.Now())
		}
		return float64(time.Since(begun)) / rounds
	}
	var without, ratios []float64
	for n := 0; b.Loop(); n++ {
		var off, on float64
		if n%2 == 0 {
			off, on = measure(nil), measure(recorder)
		} else {
			on, off = measure(recorder), measure(nil)
		}
		without, ratios = append(without, off), append(ratios, on/off)
	}
	slices.Sort(without)
	slices.Sort(ratios)
	b.ReportMetric(without[len(without)/2], "ns/round")
	b.ReportMetric(100*(ratios[len(ratios)/2]-1), "more-%")
}
