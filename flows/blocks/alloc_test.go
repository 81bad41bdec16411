package blocks

import (
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestAllocatesNothing: a round of the server does not allocate, with and without a cache, with
// answers and refusals. A round of the client does not allocate either.
func TestAllocatesNothing(t *testing.T) {
	for _, cache := range caches() {
		region, c := small()
		c.Cache = cache
		g := newRig(t, region)
		v := g.far.serve(newDisk(t, diskSize), c)
		u := g.near.newCustomer(v, ClientConfig{}, 7, 1)
		all := append(append([]umem.Frame(nil), u.frames...), u.extents[0])
		done := make([]Done, len(all))
		next := uint64(0)
		round := func() {
			for i, f := range all {
				next = (next + 4096*37) % (diskSize - nearExtent)
				if i == 0 {
					f.Len = 4095 // refused
				}
				did, err := u.Submit(Read{Offset: next, Frame: f})
				if err != nil || !did {
					t.Fatal(did, err)
				}
			}
			for n, end := 0, time.Now().Add(waitLimit); n < len(all); {
				got, err := u.Poll(done)
				if err != nil || time.Now().After(end) {
					t.Fatal(n, err)
				}
				n += got
				runtime.Gosched()
			}
		}
		for range 20 { // make grants and grow slices first
			round()
		}
		if n := testenv.AllocsPerRun(t, testenv.Fewer(40), round); n >= 1 {
			t.Errorf("with a cache of %d bytes %v allocations for each %d requests", cache, n, len(all))
		}
	}
}
