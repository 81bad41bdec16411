package message

import "testing"

// TestExtentsAreShared: if extents are few, clients and the rest of the flow each get some.
func TestExtentsAreShared(t *testing.T) {
	c := Config{MinReserve: 4, MaxReserve: 64}
	for _, one := range []struct{ free, want int }{{4, 4}, {8, 4}, {60, 30}, {128, 64}, {1000, 64}} {
		if got := c.reserveOf(one.free); got != one.want {
			t.Errorf("of %d: %d, not %d", one.free, got, one.want)
		}
	}
}
