package xdp

import "github.com/unifiedd/unifiedd/umem"

// Lend gives the port memory of the worker's, frames or extents, that Send may then send out of: any bytes of it, as often
// as it is asked to. It stays with the port until Return. With Config.Lent only.
func (p *Port) Lend(fs []umem.Frame) { p.worker.PassTo(p.held, fs) }

// Return takes back what was lent. The caller has reaped a frame for each that was sent out of it: Send counts
// frames and Reap gives their addresses as it does else, but whose they are does not change. Of an address that is odd Reap may
// give the even one in front: Linux 6.18 has another use for that bit (xsk_skb_destructor_set_addr in net/xdp/xsk.c).
func (p *Port) Return(fs []umem.Frame) { p.held.PassTo(p.worker, fs) }

// chunkUnaligned is the most bytes of a descriptor where those may lie anywhere: a page, the largest chunk that the kernel
// has (xdp_umem_reg in net/xdp/xdp_umem.c). Where packets are received it would say where they land.
const chunkUnaligned = 4096

// chunk is what the region is cut into for the kernel.
func (c *Config) chunk() uint32 {
	if c.Shape.Unaligned {
		return chunkUnaligned
	}
	return c.region().FrameSize()
}
