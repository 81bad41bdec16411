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

// TestPublished: the numbers are those of the last Publish, whichever goroutine reads them.
func TestPublished(t *testing.T) {
	type direction struct{ packets, bytes uint64 }
	var p counter.Published[struct {
		in, out direction
		by      [2]uint64
	}]
	p.Own.out = direction{3, 300}
	p.Own.by[1]++
	if got := p.Load(); got.out.packets != 0 {
		t.Errorf("before Publish: %+v", got)
	}
	p.Publish()
	p.Own.in.bytes = 9
	if got := p.Load(); got.out != (direction{3, 300}) || got.by != [2]uint64{0, 1} || got.in.bytes != 0 {
		t.Errorf("after Publish: %+v", got)
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		for last := uint64(0); last < 10_000; {
			now := p.Load().in.packets
			if now < last {
				t.Errorf("a number fell from %d to %d", last, now)
				return
			}
			last = now
		}
	})
	for range 10_000 {
		p.Own.in.packets++
		p.Publish()
	}
	readers.Wait()
}
