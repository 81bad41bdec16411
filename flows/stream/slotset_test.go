package stream

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSlotSet: a set returns its members in order, between any two slots.
func TestSlotSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 200).Draw(t, "slots")
		slot := rapid.IntRange(0, slots-1)
		s, in := newSlotSet(slots), make([]bool, slots)
		for range rapid.IntRange(0, 100).Draw(t, "changes") {
			n, add := slot.Draw(t, "slot"), rapid.Bool().Draw(t, "add")
			if in[n] = add; add {
				s.add(n)
			} else {
				s.remove(n)
			}
		}
		first, end := slot.Draw(t, "first"), rapid.IntRange(0, slots).Draw(t, "end")
		var got, want []int
		for n := s.next(first, end); n >= 0; n = s.next(n+1, end) {
			got = append(got, n)
		}
		for n := first; n < end; n++ {
			if in[n] {
				want = append(want, n)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("from %d to %d: %v, want %v", first, end, got, want)
		}
	})
}
