package nvme

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// TestSlices: the memory of attached programs is registered with the region. The disk reads and writes it in place,
// in registered buffers, and the program sees what was read.
func TestSlices(t *testing.T) {
	r := newRig(t, umem.Config{
		Size: 8 << 20, Pages: umem.Ordinary,
		Slices: []umem.SliceConfig{{Name: "a", In: 2 << 20, Out: 2 << 20}, {Name: "b", In: 4 << 20}},
	}, Config{Name: "slices"})
	_, target := r.open(TargetConfig{Path: filepath.Join(t.TempDir(), "file"), Create: true, Size: 1 << 20})
	a, b := r.region.Slice("a"), r.region.Slice("b")
	for i, p := range []*umem.Part{a.In, a.Out, b.In} {
		fs := make([]umem.Frame, 4)
		if n := r.hands.TakeFrom(p, fs); n != len(fs) {
			t.Fatalf("took %d frames of a part", n)
		}
		for k := range fs {
			fs[k] = r.at(fs[k], target, uint64(k)*4096)
			r.fill(fs[k], uint64(i*10+k))
		}
		want := bytes.Clone(r.region.Bytes(fs[2]))
		back := r.write(fs)
		for k := range back {
			clear(r.region.Bytes(back[k]))
		}
		r.read(back)
		if got := r.region.At(p.Base()+2*4096, 4096); !bytes.Equal(got, want) {
			t.Errorf("part %d has other bytes than were written", i)
		}
		if p == b.In {
			got := make([]byte, 4096)
			if n, err := p.File().ReadAt(got, 2*4096); n != 4096 || !bytes.Equal(got, want) {
				t.Errorf("the program sees other bytes: %d, %v", n, err)
			}
		}
		r.hands.Give(back)
	}
	if n := r.queue.Stats().Pinned; n != 0 {
		t.Errorf("%d operations pinned their pages: the slices were not registered", n)
	}
}
