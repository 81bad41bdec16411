package umem

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFreeList: a list agrees with a slice after random steps.
func TestFreeList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l FreeList
		var model []Frame
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(0, 4).Draw(t, "n") {
					f := Frame{Addr: next}
					next += 4096
					l.Push(f)
					model = append(model, f)
				}
			},
			"pop": func(t *rapid.T) {
				dst := make([]Frame, rapid.IntRange(0, 4).Draw(t, "n"))
				fits := len(dst) <= len(model)
				if l.Pop(dst) != fits {
					t.Fatalf("%d of %d frames: %v", len(dst), len(model), !fits)
				}
				if left := len(model) - len(dst); fits {
					if !slices.Equal(dst, model[left:]) {
						t.Fatalf("popped %v, want %v", dst, model[left:])
					}
					model = model[:left]
				}
			},
			"drop": func(t *rapid.T) {
				n := rapid.IntRange(0, 6).Draw(t, "n")
				top := l.Top(n)
				used := rapid.IntRange(0, len(top)).Draw(t, "used")
				at := len(model) - len(top)
				l.Drop(n, used)
				model = slices.Delete(model, at, at+used)
			},
			"": func(t *rapid.T) {
				if l.Len() != len(model) || !slices.Equal(l.Top(l.Len()), model) {
					t.Fatalf("the list has %v, want %v", l.Top(l.Len()), model)
				}
			},
		})
	})
}

// TestReleaseExcess: ReleaseExcess gives frames back to the pool, and never more than there are.
func TestReleaseExcess(t *testing.T) {
	region, err := Open(Config{Size: 4 << 20, Pages: Ordinary})
	testenv.Must(t, err)
	defer region.Close()
	book := region.NewBook("test")
	hands, err := book.NewHolder(OwnerWorker, "test")
	testenv.Must(t, err)
	frames := make([]Frame, 10)
	if n := hands.Take(frames); n != len(frames) {
		t.Fatalf("%d frames", n)
	}
	l := NewFreeList(frames)
	for _, c := range []struct{ ask, released, left int }{{-1, 0, 10}, {3, 3, 7}, {0, 0, 7}, {20, 7, 0}} {
		if got := l.ReleaseExcess(c.ask, hands); got != c.released || l.Len() != c.left {
			t.Errorf("asked for %d it releases %d and keeps %d; want %d and %d", c.ask, got, l.Len(), c.released, c.left)
		}
	}
	book.Publish()
	if count, err := region.Audit(); err != nil || count.Of(OwnerPool) != region.Frames() {
		t.Errorf("the pool has %d of %d frames: %v", count.Of(OwnerPool), region.Frames(), err)
	}
	hands.Close()
	testenv.Check(t, book.Close())
}

// TestPacketLen: PacketLen returns the frames and bytes of the first packet.
func TestPacketLen(t *testing.T) {
	long := []Frame{{Len: 4096, Options: More}, {Len: 4096, Options: More}, {Len: 100}, {Len: 60}}
	for from, want := range map[int][2]uint32{0: {3, 8292}, 1: {2, 4196}, 3: {1, 60}, 4: {0, 0}} {
		if n, bytes := PacketLen(long[from:]); uint32(n) != want[0] || bytes != want[1] {
			t.Errorf("from frame %d: %d frames and %d bytes, want %v", from, n, bytes, want)
		}
	}
	if n, _ := PacketLen(long[:2]); n != 0 {
		t.Errorf("a packet without its last frame has %d frames", n)
	}
}
