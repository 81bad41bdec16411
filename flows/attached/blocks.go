package attached

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// BlockReader reads blocks of a file or device that a flow serves. It belongs to one goroutine at a time.
type BlockReader struct {
	p    *port
	last uint64 // sequence of the last request
	open int    // requests without an answer
}

// Block is the answer to a request: memory that the disk has read into. The program owns it until Release.
type Block struct {
	Data     []byte // read-only
	Offset   uint64 // in the file or device
	Sequence uint64 // of the request
	Err      error  // not nil: there is no Data, and nothing to release

	entry wire.Entry
	of    *opening
}

// Blocks opens a flow that serves blocks to this program. depth is how many requests may be under way, 0: as many as
// the flow allows. The error matches ErrGone, or is a *RefusedError, as that of Receive. The caller closes the
// BlockReader.
func (k *Client) Blocks(flow string, depth int) (*BlockReader, error) {
	p, err := k.openPort(wire.Open{Flow: flow, Role: wire.Request, Depth: uint32(depth)})
	if err != nil {
		return nil, err
	}
	return &BlockReader{p: p}, nil
}

// Size returns the size of the file or device in bytes, and Align what offsets and lengths are multiples of.
func (r *BlockReader) Size() uint64 { return r.p.said.Size }

// Align returns what offsets and lengths of requests are multiples of, in bytes.
func (r *BlockReader) Align() uint32 { return r.p.said.Align }

// Longest returns the length of the longest request in bytes.
func (r *BlockReader) Longest() uint32 { return r.p.said.Longest }

// Next returns the number of the next request. It is 1 again once Wait has opened the port anew: requests without an
// answer are to be made again.
func (r *BlockReader) Next() uint64 { return r.last + 1 }

// Request asks for length bytes from an offset, both multiples of Align, and returns the number of the request, from 1
// on. It never blocks, and does not check: what the file does not have is refused by the answer. The error is ErrFull
// while as many requests are under way, or answers not released, as the rings have entries; or net.ErrClosed after
// Close.
func (r *BlockReader) Request(offset uint64, length uint32) (sequence uint64, err error) {
	if r.p.memory == nil {
		return 0, net.ErrClosed
	}
	ring := r.p.rings[wire.RingSubmitted]
	room, ok := ring.Room()
	switch {
	case !ok:
		return 0, wire.BadIndex
	case room == 0 || r.open >= ring.Len():
		return 0, ErrFull
	}
	r.last++
	r.open++
	ring.Put(&wire.Entry{Sequence: r.last, Position: offset, Length: length})
	r.p.publish(wire.RingSubmitted)
	return r.last, nil
}

// Poll returns answers, at most len(dst), in the order in which the disk gives them: Sequence tells whose each is. The
// program owns their Data until Release. Poll never blocks: 0 and no error mean that there is no answer now. Once all
// answers that had come are returned, the error says why no more come, as that of Receiver.Poll.
func (r *BlockReader) Poll(dst []Block) (n int, err error) {
	p := r.p
	if p.memory == nil {
		return 0, net.ErrClosed
	}
	ring := p.rings[wire.RingReceived]
	n, ok := ring.Waiting()
	if !ok {
		return 0, wire.BadIndex
	}
	if n == 0 {
		return 0, p.err()
	}
	n = min(n, len(dst))
	for i := range dst[:n] {
		e := ring.Get()
		r.open--
		b := Block{Offset: e.Position, Sequence: e.Sequence, entry: e}
		switch {
		case e.Status != wire.None:
			b.Err = fmt.Errorf("read %d: %w", e.Position, e.Status)
		case e.Offset > uint64(len(p.link.in)) || uint64(e.Length) > uint64(len(p.link.in))-e.Offset:
			return i, wire.BadDescriptor
		default:
			b.Data = p.link.in[e.Offset : e.Offset+uint64(e.Length) : e.Offset+uint64(e.Length)]
			b.of = p.now
			p.now.held++
		}
		dst[i] = b
	}
	ring.Advance()
	return n, nil
}

// Release gives the memory of answers back, in any order, and sets their Data to nil. Those without Data are ignored.
func (r *BlockReader) Release(bs []Block) {
	for i := range bs {
		r.p.release(&bs[i].entry, bs[i].of)
		bs[i].Data, bs[i].of = nil, nil
	}
	r.p.released()
}

// Wait waits until an answer comes, at most for a time. If the daemon is gone it attaches again: requests without an
// answer are forgotten, and their numbers begin with 1 again.
func (r *BlockReader) Wait(ctx context.Context, most time.Duration) error {
	if err := r.p.err(); err == nil {
		return r.p.sleep(ctx, wire.RingReceived, most)
	}
	if r.p.memory != nil {
		if n, ok := r.p.rings[wire.RingReceived].Waiting(); ok && n > 0 {
			return nil // what came before
		}
	}
	open, err := r.p.reopen(ctx, most)
	if open {
		r.last, r.open = 0, 0
	}
	return err
}

// Close ends the port.
func (r *BlockReader) Close() error { return r.p.close() }
