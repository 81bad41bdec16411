package flows

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestLedgerInOverload sends as fast as one sender can to flows that cannot keep
// up, and accounts for every packet: those the sender's own end dropped, those lost
// by reason, and those in the file.
func TestLedgerInOverload(t *testing.T) {
	testenv.Long(t, "a slow build is always in overload, and TestLongOverload is too")
	for _, c := range []struct {
		name, layout, worker, ring, segment string
		size, packets                       int
	}{
		{"slow worker", "packed", "sleep: 20ms", "64", "64MiB", 1000, 40000},
		{"slow worker", "slot", "sleep: 20ms", "64", "64MiB", 1000, 40000},
		{"several frames", "packed", "sleep: 20ms", "64", "64MiB", 9000, 10000},
		{"several frames", "slot", "sleep: 20ms", "64", "64MiB", 9000, 10000},
		{"slow disk", "packed", "sleep: 200us", "64", "1MiB", 1000, 60000}, // a segment for each few packets
		{"slow disk", "slot", "sleep: 200us", "64", "1MiB", 1000, 60000},
	} {
		t.Run(c.name+"/"+c.layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true, Queues: granted.overloaded})
			f := l.start(t, fmt.Sprintf(`
workers: [{name: main, %s}]
region: {size: 96MiB}
flows:
  - name: cap
    from: {interface: %s, ring: %s}
    to: {file: %s/cap, layout: %s, segment: {size: %s}, prepare: zero, flush: 50ms, durable: 100ms}
`, c.worker, l.B.Ifname, c.ring, l.dir, c.layout, c.segment), Options{}).Flows()[0]
			offered := l.overload(t, f, c.packets, c.size)
			s := l.atRest(t, f, offered)
			if lost(s) == 0 && !granted.patient && !(l.IsCard() && c.name == "slow disk") { // cards there are slower
				t.Errorf("nothing was lost: the test shows nothing (%+v)", s)
			}
			l.accounted(t, s)
		})
	}
}

// overload sends bursts of packets, as fast as it can, until some are lost, and returns how many reached the
// flow. On a busy machine the sender may be as slow as the flow, so one burst may not be enough.
func (l *lab) overload(t *testing.T, f *Flow, packets, size int) (offered uint64) {
	t.Helper()
	taken, given := 0, 0
	for burst := range 10 {
		var frames [][]byte
		for range testenv.Fewer(packets) {
			frames = append(frames, testenv.UDP(&l.A, &l.B, uint16(1000+given%16), uint64(given), min(size, l.MTU)))
			given++
		}
		taken += testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
		offered = l.offered(t)
		if n := l.sent(t) + l.refused(t); n < uint64(taken) || n > uint64(given) {
			t.Errorf("after burst %d the sender's device counts %d packets, it took %d of %d", burst, n, taken, given)
		}
		s := await(t, f, "what was offered to be accounted for", func(s status.Flow) bool { return s.Offered >= offered && s.Missing == 0 })
		if lost(s) > 0 || l.IsCard() {
			break
		}
	}
	return offered
}

// atRest stops the flow once everything offered is accounted for, and checks its
// account before and after.
func (l *lab) atRest(t *testing.T, f *Flow, offered uint64) status.Flow {
	t.Helper()
	s := await(t, f, fmt.Sprintf("the %d packets offered to be taken", offered), func(s status.Flow) bool { return s.Offered >= offered && s.Waiting == 0 && s.Missing == 0 })
	balanced(t, s, offered)
	testenv.Must(t, f.Stop())
	s = f.Status()
	balanced(t, s, offered)
	if s.Written.Packets != s.Packets || s.Durable.Packets != s.Packets || s.Dropped["write_failed"] != 0 {
		t.Errorf("of %d packets received %d are written, %d durable", s.Packets, s.Written.Packets, s.Durable.Packets)
	}
	return s
}

// accounted checks the packets read back against a stopped flow's account.
func (l *lab) accounted(t *testing.T, s status.Flow) []testenv.Captured {
	t.Helper()
	all := captures.Records(t, l.files(t)...)
	if n := uint64(len(all)); n != s.Written.Packets || uint64(total(captures.Contents(all))) != s.Written.Bytes {
		t.Errorf("the file has %d packets of %d bytes, the status %d of %d", n, total(captures.Contents(all)), s.Written.Packets, s.Written.Bytes)
	}
	last := map[string]uint64{}
	for i, p := range inTurn(captures.Contents(all)) {
		n, ok := testenv.Sequence(p)
		if !ok {
			continue
		}
		if !testenv.Intact(p) {
			t.Fatalf("packet %d is damaged", i)
		}
		flow := string(p[34:38]) // ports
		if before, again := last[flow]; again && n <= before {
			t.Fatalf("packet %d has number %d and comes after number %d", i, n, before)
		}
		last[flow] = n
	}
	return all
}

// inTurn returns captured packets in the order in which they were sent. Packets also arrive in that order,
// except from emulated cards that make the sender wait: there, a packet that waits at the end of the wire
// arrives after one that waits at its start.
func inTurn(got [][]byte) [][]byte {
	if !granted.patient {
		return got
	}
	got = slices.Clone(got)
	slices.SortStableFunc(got, func(a, b []byte) int {
		m, _ := testenv.Sequence(a)
		n, _ := testenv.Sequence(b)
		return cmp.Compare(m, n)
	})
	return got
}

// TestLongOverload sends more than a flow can take for UNIFIEDD_SECONDS (2), while another flow of the same
// worker has light traffic. Memory and disk stay bounded, the counters account for every packet, and the
// other flow loses nothing.
func TestLongOverload(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	other := l.addPair(t)
	d := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: flooded
    from: {interface: %s, ring: 256}
    to: {file: %s/flooded, layout: slot, segment: {size: 2MiB, keep: 3}, prepare: zero, flush: 50ms, durable: 100ms}
  - name: light
    from: {interface: %s, ring: 2048}
    to: {file: %s/light, layout: packed, segment: {size: 16MiB}, flush: 50ms, durable: 100ms}
`, l.B.Ifname, l.dir, other[1].Ifname, l.dir), Options{})
	flooded, light := d.Flows()[0], d.Flows()[1]
	stop := background(t, testenv.NewSender(t, &other[0]), testenv.UDP(&l.A, &l.B, 9, 0, 300))
	flood, sender := testenv.Stream(&l.A, &l.B, 9, 0, testenv.Fewer(5000), 1000), testenv.NewSender(t, &l.A)
	memory := uint64(0)
	for end := time.Now().Add(time.Duration(fromEnvironment("UNIFIEDD_SECONDS", int(testenv.Within(2*time.Second).Seconds()))) * time.Second); time.Now().Before(end); {
		sender.SendAll(t, flood, testenv.SendOptions{})
		if n := heap(); memory == 0 {
			memory = n
		} else if n > memory+8<<20 {
			t.Fatalf("the heap grew from %d to %d bytes", memory, n)
		}
		testenv.Wait(t, 10*time.Second, "old segments to be removed", func() bool { return len(l.files(t)) <= 3+4 })
	}
	stop()
	s := l.atRest(t, flooded, l.offered(t))
	if lost(s) == 0 && !granted.patient || s.Segments < 5 {
		t.Errorf("%d lost, %d segments: the test shows nothing", lost(s), s.Segments)
	}
	if s := l.atRest(t, light, other[0].Stats(t).TxPackets); lost(s) > 0 || s.Packets == 0 {
		t.Errorf("of the light traffic %d packets came and %d were lost: %v", s.Packets, lost(s), s.Dropped)
	}
}

// heap is the Go heap in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// heldWriter writes nothing while the test holds mu.
type heldWriter struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (w *heldWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}

// TestLedgerWithASlowStream: a full sink blocks its source. Packets are then lost in the kernel's rings, and
// counted there. On a busy machine the flow may receive few of the packets, so the test sends until the sink is full.
func TestLedgerWithASlowStream(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	w := &heldWriter{}
	f := l.start(t, fmt.Sprintf(`
region: {size: 32MiB, extent: 256KiB, extents: 4}
flows:
  - name: cap
    from: {interface: %s, ring: 256}
    to: {file: %s/cap, flush: 50ms}
`, l.B.Ifname, l.dir), Options{Stream: w}).Flows()[0]
	w.mu.Lock()
	release := sync.OnceFunc(w.mu.Unlock)
	t.Cleanup(release) // or the daemon could not be closed
	frames := testenv.Stream(&l.A, &l.B, 9, 0, testenv.Fewer(20000), 1000)
	await(t, f, "the sink to be full, and packets to be lost", func(s status.Flow) bool {
		if s.Stalls > 0 && (lost(s) > 0 || granted.patient) {
			return true
		}
		testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
		return false
	})
	release()
	s := l.atRest(t, f, l.offered(t))
	count := 0
	for _, b := range cutBlocks(t, w.out.Bytes()) {
		if b.kind == typePacket {
			count++
		}
	}
	if uint64(count) != s.Written.Packets {
		t.Errorf("the stream has %d packets, the status %d", count, s.Written.Packets)
	}
}
