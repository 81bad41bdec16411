package flows

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// lab is a veth pair with a daemon capturing on end B.
type lab struct {
	*testenv.Pair
	dir    string
	daemon *Daemon
}

// defaults is a configuration for a lab; tests change what they are about.
func (l *lab) defaults(layout string) string {
	return fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: cap
    from: {interface: %s, ring: 2048}
    to: {file: %s/cap, layout: %s, segment: {size: 32MiB}, prepare: zero, flush: 100ms, durable: 200ms}
`, l.B.Ifname, l.dir, layout)
}

// newLab makes the pair, the pages and a directory.
func newLab(t *testing.T, o testenv.PairOptions) *lab {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 100<<20)
	return &lab{Pair: testenv.NewPair(t, o), dir: testenv.DiskDir(t)}
}

// start opens a daemon in end B's namespace and starts its flows.
func (l *lab) start(t *testing.T, text string, o Options) *Daemon {
	t.Helper()
	l.daemon = l.open(t, text, o)
	var err error
	l.B.Do(t, func() { err = l.daemon.Start() })
	if err != nil {
		t.Fatal(err)
	}
	return l.daemon
}

// open opens a daemon that is closed, and audited, at the end of the test.
func (l *lab) open(t *testing.T, text string, o Options) *Daemon {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	d, err := Open(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAudited(t, d) })
	return d
}

// closeAudited stops the flows, checks that every frame is back in the pool, and
// closes the daemon.
func closeAudited(t *testing.T, d *Daemon) {
	t.Helper()
	for _, f := range d.Flows() {
		if err := f.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if r := d.Region(); r.Data() != nil {
		count, err := r.Audit()
		if err != nil || count.Of(umem.OwnerPool) != r.Frames() {
			t.Errorf("after stopping, the pool has %d of %d frames: %v", count.Of(umem.OwnerPool), r.Frames(), err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// testWriter logs to the test.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// files are the capture's segments in order.
func (l *lab) files(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, "*.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(found)
	return found
}

// records reads the packets of capture files up to the end or the first mistake.
func records(t testing.TB, files ...string) (all []testenv.Captured) {
	t.Helper()
	for _, name := range files {
		some, _ := testenv.ReadCapture(t, name)
		all = append(all, some...)
	}
	return all
}

// contents are the packets' bytes.
func contents(all []testenv.Captured) [][]byte {
	out := make([][]byte, len(all))
	for i := range all {
		out[i] = all[i].Data
	}
	return out
}

// packets are the contents of the records of files.
func packets(t testing.TB, files ...string) [][]byte {
	t.Helper()
	return contents(records(t, files...))
}

// await polls a flow's status until it is as wanted.
func await(t *testing.T, f *Flow, what string, ok func(FlowStatus) bool) FlowStatus {
	t.Helper()
	var s FlowStatus
	testenv.Wait(t, 10*time.Second, what, func() bool { s = f.Status(); return ok(s) })
	return s
}
