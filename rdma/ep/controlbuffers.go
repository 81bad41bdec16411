package ep

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// ControlBuffers are numbered buffers of one size, in frames that have no other use.
type ControlBuffers struct {
	region *umem.Region
	frames []umem.Frame
	size   int
	each   int // buffers in a frame
	base   uint64
	lkey   uint32
}

// NewControlBuffers takes frames of h's pool for n buffers of size bytes, registered as m. The frames
// stay with h, also after an error.
func NewControlBuffers(h *umem.Holder, m rdma.MemoryRegion, n, size int) (*ControlBuffers, error) {
	r := h.Book().Region()
	b := &ControlBuffers{region: r, size: size, each: int(r.FrameSize()) / size, base: m.Addr(), lkey: m.LKey()}
	want := (n + b.each - 1) / b.each
	b.frames = make([]umem.Frame, want)
	if got := h.Take(b.frames); got < want {
		return nil, fmt.Errorf("the pool has %d of %d frames for control messages: open a larger region (region.size), or serve fewer clients at once", got, want)
	}
	return b, nil
}

func (b *ControlBuffers) addr(n int) uint64 {
	return b.frames[n/b.each].Addr + uint64(n%b.each*b.size)
}

// Bytes returns the memory of buffer n.
func (b *ControlBuffers) Bytes(n int) []byte { return b.region.At(b.addr(n), uint64(b.size)) }

// SGE returns the element that names buffer n in work requests.
func (b *ControlBuffers) SGE(n int) rdma.SGE {
	return rdma.SGE{Addr: b.base + b.addr(n), Length: uint32(b.size), LKey: b.lkey}
}
