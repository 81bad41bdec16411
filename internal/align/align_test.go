package align

import "testing"

func TestUp(t *testing.T) {
	for _, c := range [][3]uint64{{0, 4, 0}, {1, 4, 4}, {4, 4, 4}, {5, 4, 8}, {7, 3, 9}} {
		if got := Up(c[0], c[1]); got != c[2] {
			t.Errorf("Up(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestPowerOfTwo(t *testing.T) {
	for n, want := range []int{1, 1, 2, 4, 4, 8, 8, 8, 8, 16} {
		if got := PowerOfTwo(n); got != want {
			t.Errorf("PowerOfTwo(%d) = %d, want %d", n, got, want)
		}
	}
	if got := PowerOfTwo(uint32(1<<31 - 1)); got != 1<<31 {
		t.Errorf("PowerOfTwo(1<<31 - 1) = %d", got)
	}
}
