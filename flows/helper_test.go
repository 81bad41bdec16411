package flows

import (
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// lab is a veth pair, or two cards (onCards), with a daemon capturing on end B.
type lab struct {
	*testenv.Pair
	dir    string
	daemon *Daemon
	before netlink.LinkStatistics // of end A
	came   uint64                 // packets that end B received before the test
}

// granted is what the status of a flow that captures from end B must say. Tests on cards set it.
var granted = struct {
	policy     config.ZeroCopy // for tests that do not set one
	zeroCopy   bool
	offered    bool // zero copy, to a flow that requires it
	cards      bool
	overloaded int  // number of queues in tests that overload an interface
	patient    bool // in overload the card makes the sender wait, loses nothing and may reorder (inTurn)
}{policy: config.ZeroCopyPrefer, overloaded: 2}

// defaults returns a configuration for a lab. Tests change the settings that they test.
func (l *lab) defaults(layout string) string {
	return fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: cap
    from: {interface: %s, ring: 2048}
    to: {file: %s/cap, layout: %s, segment: {size: 32MiB}, prepare: zero, flush: 100ms, durable: 200ms}
`, l.B.Ifname, l.dir, layout)
}

// layouts are the layouts that tests run with. Each form of cards uses one, since all of them take too long
// there.
var layouts = []string{"packed", "slot"}

// some returns all of the values, and on cards only the last one.
func some[T any](all ...T) []T {
	if granted.cards {
		return all[len(all)-1:]
	}
	return all
}

// oneOf returns one of the values, which follows from the test's name: the test is about something else. Its long form has
// all of them, and on cards it has the last.
func oneOf[T any](t testing.TB, all ...T) []T {
	if all = some(all...); !testing.Short() {
		return all
	}
	return all[crc32.ChecksumIEEE([]byte(t.Name()))%uint32(len(all)):][:1]
}

// engines runs a test for each engine, with what a clinic's source needs. Cards have AF_XDP only.
func engines(t *testing.T, test func(t *testing.T, from string)) {
	t.Run("xdp", func(t *testing.T) { test(t, "") })
	if !granted.cards {
		t.Run("packet", func(t *testing.T) { test(t, packetSocket) })
	}
}

// forms returns layouts, and "packet" for a flow with a packet socket, but on cards: its copies look the same whatever the
// card.
func forms(layouts []string) []string {
	if granted.cards {
		return layouts
	}
	return append(slices.Clone(layouts), "packet")
}

// form returns a configuration of one of the forms.
func (l *lab) form(name string) string {
	if name == "packet" {
		return l.passive("", "")
	}
	return l.defaults(name)
}

const packetSocket = "engine: packet, buffer: 16MiB"

// newLab makes the pair, the huge pages and a directory.
func newLab(t *testing.T, o testenv.PairOptions) *lab {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 100<<20)
	return joined(t, o)
}

// joined makes the pair and a directory.
func joined(t testing.TB, o testenv.PairOptions) *lab {
	t.Helper()
	l := &lab{Pair: testenv.NewPair(t, o), dir: testenv.DiskDir(t)}
	l.before, l.came = l.A.Stats(t), l.B.Stats(t).RxPackets
	return l
}

// sent is how many packets end A has sent.
func (l *lab) sent(t *testing.T) uint64 { return l.A.Stats(t).TxPackets - l.before.TxPackets }

// offered is how many of the sent packets reached end B. A veth pair loses none. With cards it is end B's own
// count, once that no longer changes.
func (l *lab) offered(t *testing.T) (n uint64) {
	t.Helper()
	if !l.IsCard() {
		return l.sent(t)
	}
	testenv.Wait(t, time.Second, l.B.Ifname+" to be at rest", func() bool {
		time.Sleep(100 * time.Millisecond)
		last := n
		n = l.B.Stats(t).RxPackets
		return n == last
	})
	return n - l.came
}

// feed sends frames to a flow at a rate per second, no faster than the flow writes them, and returns how many
// end A has sent.
func (l *lab) feed(t *testing.T, f *Flow, frames [][]byte, rate float64) int {
	t.Helper()
	taken := func() uint64 {
		s := f.Status()
		return s.Written.Packets + lost(s)
	}
	return testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{Rate: rate, Taken: taken})
}

// refused is how many packets end A has dropped.
func (l *lab) refused(t *testing.T) uint64 { return l.A.Stats(t).TxDropped - l.before.TxDropped }

// start opens a daemon in end B's namespace and starts its flows.
func (l *lab) start(t *testing.T, text string, o Options) *Daemon {
	t.Helper()
	l.open(t, text, o)
	l.begin(t, l.daemon.Start)
	return l.daemon
}

// begin starts flows in end B's namespace, and waits until packets reach them. It checks that they have zero
// copy as granted says.
func (l *lab) begin(t *testing.T, start func() error) {
	t.Helper()
	var err error
	l.B.Do(t, func() { err = start() })
	testenv.Must(t, err)
	l.Carry(t)
	for _, f := range l.daemon.Flows() {
		if f.config.From.Interface != l.B.Ifname || f.running() == nil {
			continue
		}
		s := await(t, f, "the flow to see the link", func(s status.Flow) bool { return s.State != status.Waiting })
		if s.ZeroCopy != granted.zeroCopy || (s.WhyNot == "") != (granted.zeroCopy || f.config.From.ZeroCopy == config.ZeroCopyCopy) {
			t.Errorf("zero copy: %v, want %v; because %q", s.ZeroCopy, granted.zeroCopy, s.WhyNot)
		}
	}
}

// parsed parses a configuration. Flows from end B get the zero copy policy that the test runs with, unless
// text sets one.
func (l *lab) parsed(t testing.TB, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text), config.Options{})
	testenv.Must(t, err)
	for i := range c.Flows {
		if from := &c.Flows[i].From; from.Interface == l.B.Ifname && !strings.Contains(text, "zero_copy:") {
			from.ZeroCopy = granted.policy
		}
	}
	return c
}

// open opens a daemon that is closed, and audited, at the end of the test.
func (l *lab) open(t *testing.T, text string, o Options) *Daemon {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	d, err := Open(l.parsed(t, text), o)
	testenv.Must(t, err)
	l.daemon = d
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
	testenv.Must(t, err)
	sort.Strings(found)
	return found
}

// await polls a flow's status until ok accepts it, and returns it.
func await(t *testing.T, f *Flow, what string, ok func(status.Flow) bool) status.Flow {
	t.Helper()
	var s status.Flow
	came := false
	defer func() {
		if !came {
			t.Logf("waiting for %s: %+v", what, s)
		}
	}()
	testenv.Wait(t, 10*time.Second, what, func() bool { s = f.Status(); came = ok(s); return came })
	return s
}
