package transport

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// scatter copies payload to elements of ours, from offset bytes into them on, and says whether all of their memory was there. They
// have room for it.
func (e *Engine) scatter(d Domain, sges []rdma.SGE, offset uint64, payload []umem.Frame) bool {
	for i := range payload {
		f := &payload[i]
		if !e.scatterBytes(d, sges, offset, e.data[f.Addr:f.Addr+uint64(f.Len)]) {
			return false
		}
		offset += uint64(f.Len)
	}
	return true
}

// scatterBytes is scatter of bytes in one piece.
func (e *Engine) scatterBytes(d Domain, sges []rdma.SGE, offset uint64, from []byte) bool {
	for i := 0; len(from) > 0; i++ {
		s := &sges[i]
		size := uint64(s.Length)
		if offset >= size {
			offset -= size
			continue
		}
		n := min(size-offset, uint64(len(from)))
		if !e.keys.local(s.LKey, d, s.Addr+offset, n, rdma.LocalWrite) {
			return false
		}
		e.put(s.Addr+offset, from[:n])
		from, offset = from[n:], 0
	}
	return true
}

// putPayload copies payload to one place of the region, which has been checked.
func (e *Engine) putPayload(addr uint64, payload []umem.Frame) {
	for i := range payload {
		f := &payload[i]
		e.put(addr, e.data[f.Addr:f.Addr+uint64(f.Len)])
		addr += uint64(f.Len)
	}
}

func (e *Engine) put(addr uint64, from []byte) {
	copy(e.data[addr:addr+uint64(len(from))], from)
	e.counts.add(CopiedBytes, uint64(len(from)))
}
