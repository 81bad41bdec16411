package ep

import (
	"math"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestWorkID: SplitWorkID returns the parts of an ID, also at their limits.
func TestWorkID(t *testing.T) {
	for _, generation := range []uint32{0, 1, math.MaxUint32} {
		for _, index := range []int{0, 1, 1 << 20, math.MaxUint32} {
			if g, i := SplitWorkID(WorkID(generation, index)); g != generation || i != index {
				t.Errorf("%d, %d became %d, %d", generation, index, g, i)
			}
		}
	}
}

// TestPostListAllocatesNothing: a list that is used again does not allocate.
func TestPostListAllocatesNothing(t *testing.T) {
	l := NewPostList(4, 4, 4, 8)
	one := rdma.SGE{Length: 64}
	if n := testing.AllocsPerRun(100, func() {
		for i := range 4 {
			l.Receive(WorkID(7, i), one, one)
		}
		if len(l.Receives) != 4 || len(l.ReceiveSGEs) != 8 || l.Receives[3].SGEs != 2 {
			t.Fatalf("%+v", l)
		}
		l.Reset()
	}); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
