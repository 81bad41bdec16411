package flows

import "testing"

// TestExtentsAreShared: few extents are shared by clients and what becomes of their messages, and neither goes without.
func TestExtentsAreShared(t *testing.T) {
	c := inboxConfig{away: 4, wish: 64}
	for _, one := range []struct{ free, want int }{{4, 4}, {8, 4}, {60, 30}, {128, 64}, {1000, 64}} {
		if got := c.share(one.free); got != one.want {
			t.Errorf("of %d: %d, not %d", one.free, got, one.want)
		}
	}
}
