package roce

import (
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// writer writes a packet into a chain of frames, which are machine.parts.
type writer struct {
	m   *datapath
	own bool // it is to look as if it had come
	n   int  // frames
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
	w.m.parts[w.n] = w.next()
	w.m.region.Side(w.m.parts[w.n]).Token = 0
	w.n++
}

// next is an empty view of another frame.
func (w *writer) next() umem.Frame {
	if !w.own {
		return w.m.head()
	}
	f := w.m.emptyFrame()
	return umem.Frame{Addr: f.Addr + w.m.offset}
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
