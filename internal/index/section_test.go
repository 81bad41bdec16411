package index

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSort: sort orders entries by their hashes, and keeps the order of entries of one hash.
func TestSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s section
		for i, h := range rapid.SliceOf(rapid.Uint32()).Draw(t, "hashes") {
			s.entries = append(s.entries, entry(h, i), entry(h>>24, i))
		}
		want := slices.Sorted(slices.Values(s.entries)) // blocks ascend, so this is the same order
		s.sort()
		if !slices.Equal(s.entries, want) {
			t.Fatalf("%x, want %x", s.entries, want)
		}
	})
}

// TestSeen: add reports a hash as new once, even after the set has grown, and again after it was
// cleared.
func TestSeen(t *testing.T) {
	var s seen
	for round := range 2 {
		for i := range uint64(3 * leastSeen) {
			if !s.add(mix(i)&^1) || s.add(mix(i)&^1) || i > 100 && s.add(mix(i-100)) {
				t.Fatalf("round %d, hash %d", round, i)
			}
		}
		s.clear()
	}
}
