package blocks

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// controlBuffers are places for control messages, of protocol.HeaderLen bytes each, in frames that are for nothing else.
type controlBuffers struct {
	region *umem.Region
	frames []umem.Frame
	each   int // cells of a frame
	base   uint64
	lkey   uint32
}

// openCells takes frames for n cells, which are the holder's.
func openCells(h *umem.Holder, m rdma.MemoryRegion, n int) (controlBuffers, error) {
	r := h.Book().Region()
	c := controlBuffers{region: r, each: int(r.FrameSize() / protocol.HeaderLen), base: m.Addr(), lkey: m.LKey()}
	c.frames = make([]umem.Frame, (n+c.each-1)/c.each)
	if got := h.Take(c.frames); got < len(c.frames) {
		h.Give(c.frames[:got])
		c.frames = nil
		return c, fmt.Errorf("the pool has %d of %d frames for control messages: open a larger region", got, (n+c.each-1)/c.each)
	}
	return c, nil
}

func (c *controlBuffers) addr(n int) uint64 {
	return c.frames[n/c.each].Addr + uint64(n%c.each*protocol.HeaderLen)
}

func (c *controlBuffers) bytes(n int) []byte { return c.region.At(c.addr(n), protocol.HeaderLen) }

func (c *controlBuffers) sge(n int) rdma.SGE {
	return rdma.SGE{Addr: c.base + c.addr(n), Length: protocol.HeaderLen, LKey: c.lkey}
}
