package mr

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGrantTable: the table behaves like a map at every number of entries that it has room for.
func TestGrantTable(t *testing.T) {
	for most := 1; most < 40; most++ {
		table, want := newTable(most), map[uint64]int32{}
		for range 2000 {
			addr := rand.Uint64N(uint64(3*most)) * 4096
			if _, there := want[addr]; there {
				table.remove(addr)
				delete(want, addr)
			} else if len(want) < most {
				place := rand.Int32()
				table.add(addr, place)
				want[addr] = place
			}
			for n := range uint64(3 * most) {
				place, there := want[n*4096]
				if got := table.find(n * 4096); there && got != place || !there && got != -1 {
					t.Fatalf("room for %d: address %#x is found at %d, want %d (%v)", most, n*4096, got, place, there)
				}
			}
		}
	}
}

func TestGrantList(t *testing.T) {
	entries, list := make([]entry, 8), newList()
	var want []int32
	for range 1000 {
		n := rand.Int32N(8)
		if i := slices.Index(want, n); i >= 0 {
			list.remove(entries, n)
			want = slices.Delete(want, i, i+1)
		} else {
			list.add(entries, n)
			want = append(want, n)
		}
		var got []int32
		for n := list.oldest; n >= 0; n = entries[n].newer {
			got = append(got, n)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}
