package counter_test

import (
	"sync"
	"testing"

	"github.com/unifiedd/unifiedd/internal/counter"
)

// TestCounter checks the values that the writer sees, and that a reader never
// sees a value fall.
func TestCounter(t *testing.T) {
	var c counter.Counter
	var readers sync.WaitGroup
	stop := make(chan struct{})
	readers.Go(func() {
		for last := uint64(0); ; {
			select {
			case <-stop:
				return
			default:
			}
			now := c.Load()
			if now < last {
				t.Errorf("the value fell from %d to %d", last, now)
			}
			last = now
		}
	})
	for i := range uint64(100_000) {
		c.Add(3)
		if got := c.Load(); got != 3*(i+1) {
			t.Fatalf("after %d additions of 3 the value is %d", i+1, got)
		}
	}
	c.Set(400_000)
	c.Set(400_000)
	close(stop)
	readers.Wait()
	if got := c.Load(); got != 400_000 {
		t.Errorf("after Set the value is %d", got)
	}
}

// TestAllocations checks that no method allocates.
func TestAllocations(t *testing.T) {
	var c counter.Counter
	if n := testing.AllocsPerRun(100, func() { c.Add(1); c.Set(c.Load() + 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	var c counter.Counter
	for b.Loop() {
		c.Add(1)
	}
}

func BenchmarkSetSame(b *testing.B) {
	var c counter.Counter
	for b.Loop() {
		c.Set(7)
	}
}
