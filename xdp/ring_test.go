package xdp

import (
	"sync/atomic"
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// TestRingBounds: mapRing refuses offsets that leave the mapping or are not aligned.
func TestRingBounds(t *testing.T) {
	memory := make([]byte, 4096)
	for at, ok := range map[uint64]bool{0: true, 4092: true, 4096: false, 4094: false, 2: false, 1 << 40: false, ^uint64(3): false} {
		if _, err := wordAt(memory, at); (err == nil) != ok {
			t.Errorf("word at %d: %v", at, err)
		}
	}
	for _, c := range []struct {
		at uint64
		n  uint32
		ok bool
	}{{0, 512, true}, {8, 511, true}, {8, 512, false}, {4, 1, false}, {0, 0, false}, {4096, 1, false}, {1 << 40, 1, false}, {0, 1 << 31, false}} {
		if _, err := slotsAt[uint64](memory, c.at, c.n); (err == nil) != c.ok {
			t.Errorf("%d slots at %d: %v", c.n, c.at, err)
		}
	}
	if _, err := slotsAt[umem.Frame](memory, 0, 257); err == nil {
		t.Error("257 descriptors in 4096 bytes")
	}
}

func memoryRing(size uint32) ring {
	return ring{producer: new(atomic.Uint32), consumer: new(atomic.Uint32), flags: new(atomic.Uint32), size: size}
}

// TestRingWraps: both kinds of ring work when their indices wrap.
func TestRingWraps(t *testing.T) {
	const start = ^uint32(0) - 5
	r := memoryRing(8)
	slots := make([]uint64, 8)
	r.producer.Store(start)
	r.consumer.Store(start)
	out := outgoing[uint64]{ring: r, slots: slots, next: start, seen: start}
	in := incoming[uint64]{ring: r, slots: slots, next: start}
	next := uint64(0)
	for round := range 20 {
		n := out.room(uint32(round%8 + 1))
		if n != uint32(round%8+1) || in.waiting(8) != 0 || out.pending() {
			t.Fatalf("round %d: room for %d, %d waiting", round, n, in.waiting(8))
		}
		for k := range n {
			out.set(k, next+uint64(k))
		}
		out.publish(n)
		if got := in.waiting(100); got != n || out.room(8) != 8-n {
			t.Fatalf("round %d: %d waiting of %d, room for %d", round, got, n, out.room(8))
		}
		for k := range n {
			if got := in.at(k); got != next+uint64(k) {
				t.Fatalf("round %d: slot %d is %d", round, k, got)
			}
		}
		in.release(n)
		next += uint64(n)
	}
}

// TestRingFromOutside: whatever the kernel writes, a ring never reports more than it holds.
func TestRingFromOutside(t *testing.T) {
	in := incoming[uint64]{ring: memoryRing(8), slots: make([]uint64, 8)}
	in.producer.Store(1 << 30)
	if n := in.waiting(64); n != 8 {
		t.Errorf("%d waiting in a ring of 8", n)
	}
}
