package roce

import (
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// writer writes a packet into a chain of frames, which are machine.parts.
type writer struct {
	m      *machine
	offset uint64            // where in each frame it begins
	next   func() umem.Frame // gives another
	n      int               // frames
}

// begin goes on behind what the first frame has.
func (w *writer) begin(first umem.Frame) {
	w.m.parts[0], w.n = first, 1
	w.m.parts[0].Options = 0
}

func (w *writer) write(b []byte) {
	for len(b) > 0 {
		f := &w.m.parts[w.n-1]
		end := f.Addr&^(w.m.chunk-1) + w.m.chunk
		n := copy(w.m.data[f.Addr+uint64(f.Len):end], b)
		f.Len += uint32(n)
		if b = b[n:]; len(b) > 0 {
			w.add()
		}
	}
}

// add goes on in another frame.
func (w *writer) add() {
	w.m.parts[w.n-1].Options = umem.More
	f := w.next()
	w.m.parts[w.n] = umem.Frame{Addr: f.Addr + w.offset}
	w.m.region.Side(f).Token = 0
	w.n++
}

// payload writes that of a packet, and takes the CRC over it.
func (w *writer) payload(p *transport.Packet, c wire.ICRC) wire.ICRC {
	w.write(p.Inline)
	c = c.Add(p.Inline)
	for _, piece := range p.Pieces[:p.Count] {
		b := w.m.data[piece.Addr : piece.Addr+uint64(piece.Length)]
		w.write(b)
		c = c.Add(b)
	}
	return c
}
