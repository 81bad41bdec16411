package generator

import (
	"testing"
	"time"
)

// TestTimes: packets are due at their times, wait while the ring has space, and are lost when it is
// full.
func TestTimes(t *testing.T) {
	g := Source{rate: 3000}
	for _, n := range []uint64{0, 1, 2, 2999, 3000, 12345678} {
		if at := int64(g.timeOf(n)); g.timesPassed(at-1) != n || g.timesPassed(at) != n+1 {
			t.Errorf("packet %d is due at %d ns, when %d packets are, and %d a nanosecond before", n, at, g.timesPassed(at), g.timesPassed(at-1))
		}
	}
	if n := g.queue(int64(time.Second), 2990); n != 10 || g.late.Load() != 0 {
		t.Errorf("%d wait, %d are lost", n, g.late.Load())
	}
	if n := g.queue(10e9, 2990); n != ringSize || g.late.Load() != 30000-2990-ringSize || g.waiting.Load() != n {
		t.Errorf("%d wait, %d are lost", n, g.late.Load())
	}
	g.limit = 3000
	if n := g.queue(11e9, 2990); n != 10 {
		t.Errorf("%d wait of the last 10", n)
	}
}

// TestClockSetBack: after the clock is set back nothing counts as lost, and packets go on at the same rate.
func TestClockSetBack(t *testing.T) {
	begun := time.Unix(1000, 0)
	g := Source{rate: 1000}
	g.begun.Store(begun.UnixNano())
	if n := g.due(begun.Add(time.Second)); n != 1000 {
		t.Fatalf("%d are due after a second", n)
	}
	g.packets.Add(1000)
	back := begun.Add(-time.Hour)
	for ms := range 10 {
		now := back.Add(time.Duration(ms) * time.Millisecond)
		if n := g.due(now); n != min(ms, 1) || g.late.Load() != 0 {
			t.Errorf("%d ms after the clock was set back %d are due, and %d are lost", ms, n, g.late.Load())
		}
		g.packets.Add(uint64(min(ms, 1)))
	}
}

// TestDeadline: between two packets the worker may sleep until the next one is due, and the packet is then
// due. Before, the deadline was one interval early, so the worker woke every 50 µs for nothing.
func TestDeadline(t *testing.T) {
	begun := time.Unix(1000, 0)
	for _, rate := range []uint64{1, 3, 7000} {
		g := Source{rate: rate}
		g.begun.Store(begun.UnixNano())
		now := begun
		for made := range uint64(10) {
			now = g.Deadline(now)
			if n := g.due(now); n != 1 {
				t.Fatalf("at %d a second, %d packets are due at the deadline after %d", rate, n, made)
			}
			if stamp := begun.Add(time.Duration(g.timeOf(made))); !stamp.Equal(now) {
				t.Errorf("at %d a second, packet %d is due at %v and has %v as its time", rate, made, now, stamp)
			}
			g.packets.Add(1)
		}
	}
}
