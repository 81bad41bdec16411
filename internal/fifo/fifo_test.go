package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRing: a ring is a queue, whatever is done with it in which order, and also when its counters wrap.
func TestRing(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(20)
		ring, next := New[int](n), 0
		if ring.Cap() < n || ring.Cap() >= 2*n && n > 1 || ring.Cap()&(ring.Cap()-1) != 0 {
			t.Fatalf("a ring for %d values has room for %d", n, ring.Cap())
		}
		ring.head = ^uint32(0) - uint32(r.IntN(100))
		ring.tail = ring.head
		var want []int
		for range 1000 {
			switch r.IntN(5) {
			case 0, 1:
				if len(want) < n {
					next++
					ring.Push(next)
					want = append(want, next)
				}
			case 2:
				if len(want) > 0 {
					if got := ring.Pop(); got != want[0] {
						t.Fatalf("seed %d: %d came, want %d", seed, got, want[0])
					}
					want = want[1:]
				}
			case 3:
				dst := make([]int, r.IntN(4))
				k := ring.Read(dst)
				if !slices.Equal(dst[:k], want[:min(len(dst), len(want))]) {
					t.Fatalf("seed %d: %v came, want %v", seed, dst[:k], want)
				}
				want = want[k:]
			case 4:
				front := ring.Front(r.IntN(4))
				if len(front) > len(want) || !slices.Equal(front, want[:len(front)]) {
					t.Fatalf("seed %d: %v is in front, want %v", seed, front, want)
				}
				ring.Skip(len(front))
				want = want[len(front):]
			}
			if ring.Len() != len(want) {
				t.Fatalf("seed %d: %d values are there, want %d", seed, ring.Len(), len(want))
			}
			for i := range want {
				if *ring.At(i) != want[i] {
					t.Fatalf("seed %d: value %d is %d, want %d", seed, i, *ring.At(i), want[i])
				}
			}
		}
	}
}
