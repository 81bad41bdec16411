package order

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// line is a line of a file with times.
type line struct {
	order, tick, decision, call, stamp uint64
	way                                string
}

// readTimes reads a file with times, whose first line must have the names.
func readTimes(t testing.TB, path string) (all []line) {
	t.Helper()
	b, err := os.ReadFile(path)
	testenv.Must(t, err)
	first, rest, ok := strings.Cut(string(b), "\n")
	if !ok || first+"\n" != header {
		t.Fatalf("the file begins with %q", first)
	}
	for text := range strings.Lines(rest) {
		words := strings.Split(strings.TrimSuffix(text, "\n"), ",")
		if len(words) != 6 || !strings.HasSuffix(text, "\n") {
			t.Fatalf("line %q", text)
		}
		var v [5]uint64
		for i := range v {
			if v[i], err = strconv.ParseUint(words[i], 10, 64); err != nil {
				t.Fatalf("line %q: %v", text, err)
			}
		}
		all = append(all, line{v[0], v[1], v[2], v[3], v[4], words[5]})
	}
	return all
}

// count returns how many times a histogram has.
func count(h *latency.Shared) int64 {
	if s := h.Summary(); s != nil {
		return s.Count
	}
	return 0
}

// TestTimes: each order that leaves is in the file once, with times that follow each other, whichever way it went. The
// stamp of a segment is between the decision and the order's arrival at the exchange's interface, or a little behind that:
// on veth the kernel is done with a segment when the other end has it. Histograms have the same orders.
func TestTimes(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	path := filepath.Join(t.TempDir(), "times.csv")
	r := newRig(t, &p.A, &p.B, options{times: path})
	got := read(r.exchange.accept(), 64, nil)
	const orders = 600
	seen := watch(t, &p.B, orders)
	var b [64]byte
	var ticks [orders]uint64
	for n := range uint64(orders) {
		if ticks[n] = uint64(time.Now().Add(-time.Millisecond).UnixNano()); n%10 == 0 {
			ticks[n] = 0
		}
		r.tick = ticks[n]
		if why := r.send(orderOf(b[:], n, 64)); why != wire.None {
			t.Fatal(why)
		}
	}
	r.await("stream", func() bool { return got.orders.Load() == orders })
	r.await("stamps", func() bool { return r.sink.queued == 0 })
	arrived := seen.end(t)
	s := r.status().Orders
	stamped := s.Times.Stamps == "kernel"
	r.close()
	lines := readTimes(t, path)
	if len(lines) != orders {
		t.Fatalf("%d lines", len(lines))
	}
	segments := uint64(0)
	have := map[uint64]bool{}
	for _, l := range lines {
		n := l.order - 1
		if n >= orders || have[n] {
			t.Fatalf("order %d, or twice", l.order)
		}
		have[n] = true
		out := l.call
		if l.way == "segment" {
			segments++
			if stamped {
				out = l.stamp
			}
		}
		if l.tick != ticks[n] || l.decision <= l.tick || out < l.decision || l.way == "segment" && stamped != (l.call == 0) || l.way != "segment" && l.stamp != 0 {
			t.Errorf("tick %d: %+v", ticks[n], l)
		}
		if late := int64(out) - arrived[n]; l.way == "segment" && (late < 0 && stamped || !testing.Short() && late > int64(testenv.Within(5*time.Millisecond))) {
			t.Errorf("order %d left %v behind its arrival", l.order, time.Duration(late))
		}
	}
	if segments != s.Segments || s.Segments < orders/20 || segments+total(s.Kernel) != orders {
		t.Errorf("%d segments: %+v", segments, s)
	}
	o := s.Times
	if o.TickToDecision.Count != orders*9/10 || o.TickToOut.Count != orders*9/10 || o.DecisionToOut.Count != orders || o.NoTick != orders/10 || o.NoStamp != 0 {
		t.Errorf("%+v", o)
	}
	if least := o.TickToDecision.Min; least < 1e6 || o.TickToOut.Min < least {
		t.Errorf("tick to decision %+v, tick to out %+v", o.TickToDecision, o.TickToOut)
	}
	if dropped := total(o.File.Dropped); dropped != 0 || o.File.Error != "" {
		t.Errorf("%+v", o.File)
	}
	t.Logf("stamps of the %s %s: tick to decision %+v, decision to out %+v", o.Stamps, o.WhyNoStamps, o.TickToDecision.Summary, o.DecisionToOut.Summary)
}

// TestBegin: what a program says of its times is believed as far as it can be right.
func TestBegin(t *testing.T) {
	const second, now = uint64(time.Second), uint64(1_700_000_000_000_000_000)
	for _, c := range []struct {
		tick, decided uint64
		known         bool
		want          uint64 // the decision
	}{
		{0, 0, false, now},
		{now - 900, now - 500, true, now - 500},
		{now - 900, 0, true, now},
		{now - 500, now - 900, false, now - 900},          // the tick is behind the decision
		{now - 900, now + second/2, true, now + second/2}, // within the round
		{now - 900, now + 2*second, true, now},
		{now - 3*second, now - 2*second, true, now}, // too old for a decision
		{now - 61*second, now, false, now},
		{math.MaxUint64, math.MaxUint64, false, now},
		{12345, now, false, now}, // a card's clock
	} {
		var x times
		x.begin(7, &umem.Side{Stamp: now, Token: c.tick, Block: c.decided})
		if a := x.asked; a.tick != c.tick || a.known != c.known || a.decision != c.want || a.order != 7 {
			t.Errorf("%+v: %+v", c, a)
		}
	}
}

// TestFinish: an order counts in the histograms for which its times are known. A card's stamp is only in the file.
func TestFinish(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 2 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	defer region.Close()
	frame := umem.Frame{Addr: 4096, Len: 4096}
	for _, c := range []struct {
		name                string
		granted             xdp.Granted
		tick                uint64
		out, whole, noStamp int64 // counts
	}{
		{name: "no stamps", tick: 5, out: 1, whole: 1},
		{name: "no stamps, no tick", out: 1},
		{name: "no stamp of the kernel", granted: xdp.Granted{SendTimes: true}, tick: 5, noStamp: 1},
		{name: "no stamp of the card", granted: xdp.Granted{SendTimes: true, SendClock: umem.CardClock}, tick: 5, out: 1, whole: 1, noStamp: 1},
	} {
		x := times{region: region, granted: c.granted, slots: make([]asked, 4)}
		x.number([]umem.Frame{{Addr: 8192}, frame})
		now := uint64(time.Now().UnixNano())
		side := umem.Side{Stamp: now}
		if c.tick > 0 {
			side.Token = now - c.tick
		}
		x.begin(1, &side)
		x.left(x.slot(frame))
		x.abandon()
		if n := count(&x.toOut); n != c.out || count(&x.whole) != c.whole || int64(x.noStamp.Load()) != c.noStamp || count(&x.toDecision) != int64(min(1, c.tick)) {
			t.Errorf("%s: %d, %d, %d", c.name, n, count(&x.whole), x.noStamp.Load())
		}
	}
}

// TestWays: each way has a word of its own.
func TestWays(t *testing.T) {
	all := map[string]bool{}
	for w := range brokenWay + 1 {
		all[w.String()] = true
	}
	if len(all) != int(tcpsend.Reasons)+2 || !all["segment"] || !all["no_room"] || !all["broken"] || !all["no_path"] {
		t.Errorf("%v", all)
	}
}

// newFile opens a file with times.
func newFile(t *testing.T, path string) *timesFile {
	t.Helper()
	f, err := openTimesFile(path, slog.New(slog.DiscardHandler))
	testenv.Must(t, err)
	t.Cleanup(func() { f.close() })
	return f
}

// TestTimesFile: a file is continued, one writer at a time has it, and what is in the ring at the end is written.
func TestTimesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "times.csv")
	f := newFile(t, path)
	f.put(&asked{1, 2, 3, 4, 5, way(tcpsend.NoPath), true})
	if _, err := openTimesFile(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another flow") {
		t.Errorf("two flows write one file: %v", err)
	}
	testenv.Must(t, errors.Join(f.close(), f.close()))
	f = newFile(t, path)
	f.put(&asked{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, brokenWay, false})
	testenv.Must(t, f.close())
	got := readTimes(t, path)
	if len(got) != 2 || got[0] != (line{1, 2, 3, 4, 5, "no_path"}) || got[1] != (line{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, "broken"}) {
		t.Errorf("%+v", got)
	}
	for bad, says := range map[string]string{t.TempDir(): "directory", filepath.Join(path, "x"): "not a directory", "/dev/null": "regular"} {
		if _, err := openTimesFile(bad, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestTimesFileMoved: when the file is moved away, a new one is begun, and no line is lost.
func TestTimesFileMoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "times.csv")
	f := newFile(t, path)
	f.put(&asked{order: 1})
	testenv.Wait(t, 5*time.Second, "a line", func() bool { return f.written.Load() == 1 })
	testenv.Must(t, os.Rename(path, path+".1"))
	f.put(&asked{order: 2}) // into either
	testenv.Wait(t, 10*time.Second, "a new file", func() bool { _, err := os.Stat(path); return err == nil })
	f.put(&asked{order: 3})
	testenv.Must(t, f.close())
	all := append(readTimes(t, path+".1"), readTimes(t, path)...)
	if len(all) != 3 || all[0].order != 1 || all[1].order != 2 || all[2].order != 3 || len(readTimes(t, path)) == 0 {
		t.Errorf("%+v", all)
	}
}

// TestTimesFileSlow: a file that takes nothing makes orders be dropped and counted, in bounded memory, and the worker does
// not wait. Lines are whole when the file takes some again.
func TestTimesFileSlow(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	testenv.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "times.csv")
	f := newFile(t, path)
	for n := range uint64(3 * ringEntries) {
		f.put(&asked{order: n + 1, tick: 1764230400000012311, decision: 1764230400000012311})
	}
	testenv.Wait(t, 10*time.Second, "the ring to be empty", func() bool { return f.takes.Load() == f.puts.Load() })
	s := f.status()
	if s.Orders == 0 || s.Dropped["slow_file"] == 0 || s.Dropped["file_error"] == 0 || s.Orders+total(s.Dropped) != 3*ringEntries || !strings.Contains(s.Error, "no space") {
		t.Errorf("%+v", s)
	}
	testenv.Must(t, os.Rename(path, path+".1"))
	kept := readTimes(t, path+".1")
	if uint64(len(kept)) != s.Orders {
		t.Errorf("%d lines, %+v", len(kept), s)
	}
	testenv.Must(t, os.Remove(path+".1"))
	testenv.Wait(t, 10*time.Second, "a new file", func() bool { _, err := os.Stat(path); return err == nil })
	f.put(&asked{order: 99})
	testenv.Wait(t, 5*time.Second, "a line", func() bool { return f.status().Error == "" })
	if got := readTimes(t, path); len(got) != 1 || got[0].order != 99 {
		t.Errorf("%+v", got)
	}
}

// TestTimesFileWraps: the ring goes round, and each order is in the file once, in order.
func TestTimesFileWraps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "times.csv")
	f := newFile(t, path)
	const n = 4 * ringEntries
	for i := range uint64(n) {
		for f.puts.Load()-f.takes.Load() > ringEntries/2 {
			time.Sleep(100 * time.Microsecond)
		}
		f.put(&asked{order: i + 1})
	}
	testenv.Must(t, f.close())
	b, err := os.ReadFile(path)
	testenv.Must(t, err)
	if lines := bytes.Count(b, []byte{'\n'}) - 1; lines != n || !bytes.HasSuffix(b, fmt.Appendf(nil, "%d,0,0,0,0,segment\n", n)) || f.full.Load() != 0 {
		t.Errorf("%d lines, %+v", lines, f.status())
	}
}
