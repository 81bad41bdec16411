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
		if at := int64(g.timeOf(n)); g.timesPassed(at) > n || g.timesPassed(at+1) < n {
			t.Errorf("packet %d has its time at %d ns, when %d and %d packets have", n, at, g.timesPassed(at), g.timesPassed(at+1))
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
