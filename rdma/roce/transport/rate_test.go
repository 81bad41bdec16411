package transport

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// testLine is the rate of the link: one byte per nanosecond.
const testLine = 8_000_000_000

// capable makes the packets of queue pairs ECN capable.
func capable(a *rdma.Attributes) { a.Address.TrafficClass = 26<<2 | wire.ECT0 }

// marked makes the first end send with marks, as if a router had set them, or without.
func (w *world) marked(yes bool) {
	path := wire.Path{Source: w.ends[0].gid, Destination: w.ends[1].gid, SourcePort: 0xc123, HopLimit: 64, TrafficClass: wire.ECT0}
	if yes {
		path.TrafficClass = wire.CE
	}
	var err error
	w.ends[0].template, err = wire.NewTemplate(&path)
	must(w.t, err)
}

// passes runs the world for a time, also if nothing happens.
func (w *world) passes(d time.Duration) {
	end := w.now.After(d)
	w.run(d)
	w.now = max(w.now, end)
}

// writes posts WRITEs of n bytes until the queue is full.
func writes(t tb, q *QueuePair, from, to *end, n uint32) {
	t.Helper()
	for q.sq.tail.Load()-q.head < uint32(q.sq.depth()) {
		send(t, q, rdma.SendRequest{Op: rdma.Write, RemoteAddr: to.base, RKey: to.key}, rdma.SGE{Addr: from.base, Length: n, LKey: from.key})
	}
}

// TestRateControl: a queue pair halves its rate at the first CNP, keeps to the rate, falls to the least one while marks go
// on, and is not limited any more some time after they have ended.
func TestRateControl(t *testing.T) {
	const least = testLine / 100
	w := newWorld(t, 1, Config{Rate: RateControl{Line: testLine, Least: least}, Window: 4096})
	a, _ := w.pair(options{tweak: capable, depth: 64})
	from, to := w.ends[0], w.ends[1]
	bytes := uint64(0)
	w.link.each = func(end int, h *wire.Header) bool {
		if end == 0 && h.Opcode.Kind() == wire.Write {
			bytes += 1024 + headerBytes
		}
		return false
	}
	w.marked(true)
	lowest := uint64(testLine)
	for range 400 { // 40 ms
		writes(t, a, from, to, 16384)
		w.passes(100 * time.Microsecond)
		if r := a.Rate(); r != 0 {
			lowest = min(lowest, r)
		}
		from.done = from.done[:0]
	}
	if lowest != least || from.Count(RateCuts) < 10 || from.Count(RateCuts) != from.Count(CNPsReceived) {
		t.Errorf("the lowest rate is %d bit/s, after %d CNPs and %d cuts", lowest, from.Count(CNPsReceived), from.Count(RateCuts))
	}
	w.marked(false)
	raised := 0
	for ; a.Rate() != 0 && raised < 2000; raised++ {
		before, at := bytes, a.Rate()
		writes(t, a, from, to, 16384)
		w.passes(100 * time.Microsecond)
		most := max(at, a.Rate())
		if from.done = from.done[:0]; a.Rate() == 0 {
			break // the rest of the round had no limit
		}
		allowed := most/80_000 + min(uint64(burstTime)*most/8e9, burstBytes) + 2*(1024+headerBytes) // bytes in 100 µs, a burst, and a packet at each end
		if sent := bytes - before; sent > allowed {
			t.Fatalf("%d bytes left in 100 µs, at %d to %d bit/s: at most %d were allowed", sent, at, a.Rate(), allowed)
		}
	}
	if a.Rate() != 0 {
		t.Errorf("after %d rounds without marks the rate is %d bit/s", raised, a.Rate())
	}
	t.Logf("not limited any more %v after the last mark", time.Duration(raised)*100*time.Microsecond)
	before := bytes
	writes(t, a, from, to, 16384)
	w.passes(100 * time.Microsecond)
	if bytes-before < 10*(1024+headerBytes) {
		t.Errorf("%d bytes left in 100 µs without a limit", bytes-before)
	}
}

// TestRateOfOthers: queue pairs whose packets are not ECN capable, and those of an engine without rate control, send on
// as before.
func TestRateOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		tweak  func(*rdma.Attributes)
	}{
		"not ECN capable": {Config{Rate: RateControl{Line: testLine}}, nil},
		"no rate control": {Config{}, capable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, c.config)
			a, _ := w.pair(options{tweak: c.tweak})
			w.marked(true)
			writes(t, a, w.ends[0], w.ends[1], 4096)
			w.run(time.Millisecond)
			if e := w.ends[0]; e.Count(CNPsReceived) == 0 || e.Count(RateCuts) != 0 || a.Rate() != 0 {
				t.Errorf("%d CNPs, %d cuts, %d bit/s", e.Count(CNPsReceived), e.Count(RateCuts), a.Rate())
			}
		})
	}
}

// TestRateOfReads: answers to READs keep to the rate, too, which is that of the side that sends them.
func TestRateOfReads(t *testing.T) {
	w := newWorld(t, 1, Config{Rate: RateControl{Line: testLine, Least: testLine / 100}})
	a, b := w.pair(options{tweak: capable})
	from, to := w.ends[0], w.ends[1]
	b.rate = rate{limited: true, now: perNanosecond(testLine / 100), target: perNanosecond(testLine / 100), decayed: w.now, stepped: w.now, next: w.now}
	w.ends[1].config.Rate.Period = time.Hour // no step
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Read, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 100*1024))
	w.run(5 * time.Millisecond) // at 10 bytes a microsecond
	if len(from.done) != 0 {
		t.Errorf("the READ is done within 5 ms")
	}
	w.run(10 * time.Millisecond)
	from.want(t, "1 READ")
}

// TestBadRates: rates that contradict each other are refused.
func TestBadRates(t *testing.T) {
	for _, c := range []RateControl{{Line: 10, Least: 11}, {Line: 10, Gain: 2}, {Line: 10, Steps: -1}} {
		if err := c.setDefaults(); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
