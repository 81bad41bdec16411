package target

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// controlBuffers are places of one size, in frames that are for nothing else.
type controlBuffers struct {
	region *umem.Region
	frames []umem.Frame
	size   int
	each   int // cells of a frame
	base   uint64
	lkey   uint32
}

// openCells takes frames for n cells, which are the holder's.
func openCells(h *umem.Holder, m rdma.MemoryRegion, n, size int) (controlBuffers, error) {
	r := h.Book().Region()
	c := controlBuffers{region: r, size: size, each: int(r.FrameSize()) / size, base: m.Addr(), lkey: m.LKey()}
	frames, err := take(h.Take, (n+c.each-1)/c.each, "frames")
	c.frames = frames
	return c, err
}

// take takes frames or extents of the pool. Those it took are the caller's also where they were too few.
func take(from func([]umem.Frame) int, n int, kind string) ([]umem.Frame, error) {
	frames := make([]umem.Frame, n)
	if got := from(frames); got < n {
		return frames[:got], fmt.Errorf("the pool has %d of %d %s: open a larger region (region.size, region.extents), or serve fewer queues at once", got, n, kind)
	}
	return frames, nil
}

func (c *controlBuffers) addr(n int) uint64 { return c.frames[n/c.each].Addr + uint64(n%c.each*c.size) }

func (c *controlBuffers) bytes(n int) []byte { return c.region.At(c.addr(n), uint64(c.size)) }

func (c *controlBuffers) sge(n int) rdma.SGE {
	return rdma.SGE{Addr: c.base + c.addr(n), Length: uint32(c.size), LKey: c.lkey}
}
