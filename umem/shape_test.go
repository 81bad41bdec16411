package umem

import (
	"math"
	"testing"
)

func TestShape(t *testing.T) {
	for _, c := range []struct {
		headroom, frame, capacity uint32
		fits                      bool
	}{
		{0, 4096, 3840, true},
		{0, 2048, 1792, true},
		{284, 4096, 3556, true},
		{284, 2048, 1508, true},
		{2048 - 256 - 590, 2048, 590, true},
		{2048 - 256 - 589, 2048, 589, false},
		{2048 - 256, 2048, 0, false},
		{2048, 2048, 0, false},
		{math.MaxUint32, 4096, 0, false},
		{math.MaxUint32 - 255, 4096, 0, false},
	} {
		s := Shape{Headroom: c.headroom}
		if got := s.Capacity(c.frame); got != c.capacity {
			t.Errorf("capacity of headroom %d in %d is %d, want %d", c.headroom, c.frame, got, c.capacity)
		}
		if err := s.Check(c.frame); (err == nil) != c.fits {
			t.Errorf("check of headroom %d in %d: %v", c.headroom, c.frame, err)
		}
	}
	wantError(t, Shape{Headroom: 1500}.Check(2048), "headroom 1500", "292 bytes of a 2048-byte frame", "lower the headroom")
	if got := (Shape{Headroom: 284}).Offset(); got != 540 {
		t.Errorf("offset of headroom 284 is %d, want 540", got)
	}
}
