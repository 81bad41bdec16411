package export

import (
	"encoding/binary"
	"io"

	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// AddCapture exports a capture of another program, of size bytes, in the order of its packets. It exports all
// packets before an error.
func (e *Exporter) AddCapture(f io.ReaderAt, size int64) error {
	p := capfile.Parser{Extra: capfile.Probe(f, size)}
	p.Begin(size)
	w := window{r: f}
	link := uint32(0)
	e.sum.Segments++
	for first := true; ; {
		at, n := p.Want()
		if n == 0 {
			return nil
		}
		b, err := w.at(at, n)
		if err != nil && at+int64(n) <= size {
			return &capfile.Error{Offset: at, Reason: err}
		}
		found, ok, err := p.Give(b)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if first || found.Link != link {
			if err := e.beginLink(found.Link); err != nil {
				return err
			}
			first, link = false, found.Link
		}
		data, err := w.at(found.Offset, int(found.Len))
		if err != nil {
			return &capfile.Error{Offset: found.Offset, Reason: err}
		}
		e.sum.Seen++
		one := pcapng.Packet{Time: found.Time, Data: data, OrigLen: found.Orig}
		if !e.wants(&one) {
			continue
		}
		if err := e.write(&one); err != nil {
			return err
		}
	}
}

// beginLink adds an interface of a link type for the next packets.
func (e *Exporter) beginLink(link uint32) error {
	raw, err := pcapng.AppendStreamHead(nil, pcapng.Section{}, []pcapng.Interface{{LinkType: uint16(link)}})
	if err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(raw[4:])
	return e.begin(pcapng.Head{Section: raw[:n], Interfaces: [][]byte{raw[n:]}})
}

// window reads a file from front to back.
type window struct {
	r    io.ReaderAt
	from int64
	b    []byte
}

// windowLen is more than the longest packet.
const windowLen = 1 << 20

// at returns n bytes at a place. They are valid until the next call.
func (w *window) at(place int64, n int) ([]byte, error) {
	if place < w.from || place+int64(n) > w.from+int64(len(w.b)) {
		if w.b = w.b[:cap(w.b)]; len(w.b) == 0 {
			w.b = make([]byte, windowLen)
		}
		got, err := w.r.ReadAt(w.b, place)
		w.from, w.b = place, w.b[:got]
		if got < n {
			return nil, err
		}
	}
	return w.b[place-w.from:][:n], nil
}
