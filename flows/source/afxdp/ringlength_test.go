package afxdp

import "testing"

// TestLongestRing: the rings are as long as the frames permit for all queues, within the bounds.
func TestLongestRing(t *testing.T) {
	for _, c := range []struct{ frames, queues, want int }{
		{-1, 1, 64}, {63, 1, 64}, {127, 1, 64}, {128, 1, 128}, {30592, 1, 16384}, {32768, 1, 32768}, {1 << 20, 1, 32768},
		{30592, 4, 4096}, {30592, 64, 256},
	} {
		if got := longestRing(c.frames, c.queues); got != c.want {
			t.Errorf("%d frames, %d queues: %d, want %d", c.frames, c.queues, got, c.want)
		}
	}
}
