package attached

import (
	"context"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// Receiver gets packets or messages of a flow. It belongs to one goroutine at a time.
type Receiver struct {
	p *port
}

// Message is a packet or message in memory that the daemon has written. The program owns it until Release.
type Message struct {
	// Data is the whole packet, from its first header on, or the payload of a message. It lies in memory of
	// the daemon that this program has mapped read-only: writing faults. Once the port has ended, the daemon may
	// write there again.
	Data []byte
	// Position counts the packets or messages that came to the program's end of the flow, from 1 on: a gap means
	// that this program lost some. What was lost before, in the card or the kernel, has no position.
	Position uint64
	// Sequence is the number that the sender of a message gave it; 0 for packets.
	Sequence uint64
	// Stamp is when it arrived at the daemon: nanoseconds since 1970. With times of a card's clock it counts from
	// that clock's own start.
	Stamp uint64

	entry wire.Entry
	of    *opening
}

// Receive opens a flow to this program. depth is how many packets or messages it may hold at once, 0: as many as the
// flow allows. The error matches ErrGone, or is a *RefusedError: no_such_flow if no flow of that name runs and is to
// this program, busy if the program has it open already. The caller closes the Receiver.
func (k *Client) Receive(flow string, depth int) (*Receiver, error) {
	p, err := k.openPort(wire.Open{Flow: flow, Role: wire.Receive, Depth: uint32(depth)})
	if err != nil {
		return nil, err
	}
	return &Receiver{p: p}, nil
}

// Poll returns what has come, at most len(dst), in the order of the flow. The program owns it until Release. Poll never
// blocks: 0 and no error mean that nothing is there now. Once everything that had come is returned, the error says why
// nothing more comes: ErrGone, a *RefusedError, or net.ErrClosed after Close. Wait opens the port again. An error of
// package wire means that the rings are damaged.
func (r *Receiver) Poll(dst []Message) (n int, err error) {
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
		if e.Offset > uint64(len(p.link.in)) || uint64(e.Length) > uint64(len(p.link.in))-e.Offset {
			return i, wire.BadDescriptor
		}
		p.now.held++
		dst[i] = Message{p.link.in[e.Offset : e.Offset+uint64(e.Length) : e.Offset+uint64(e.Length)], e.Position, e.Sequence, e.Stamp, e, p.now}
	}
	ring.Advance()
	return n, nil
}

// Release gives packets or messages back, in any order, and sets their Data to nil. Those that came before the port was
// opened anew are the daemon's already. It never blocks. What is held counts towards the flow's queue.
func (r *Receiver) Release(ms []Message) {
	for i := range ms {
		r.p.release(&ms[i].entry, ms[i].of)
		ms[i].Data, ms[i].of = nil, nil
	}
	r.p.released()
}

// Wait waits until something comes, at most for a time. If the daemon is gone, it attaches again. The error is that
// of ctx, or says that the daemon does not want this program any more.
func (r *Receiver) Wait(ctx context.Context, most time.Duration) error {
	if err := r.p.err(); err != nil {
		if n, ok := r.waiting(); ok && n > 0 {
			return nil // what came before
		}
		_, err := r.p.reopen(ctx, most)
		return err
	}
	return r.p.sleep(ctx, wire.RingReceived, most)
}

func (r *Receiver) waiting() (int, bool) {
	if r.p.memory == nil {
		return 0, false
	}
	return r.p.rings[wire.RingReceived].Waiting()
}

// Close ends the port. Messages that are not released are the daemon's again: their Data must not be used.
func (r *Receiver) Close() error { return r.p.close() }

// release gives a frame of an opening back.
func (p *port) release(e *wire.Entry, of *opening) {
	if of == nil {
		return // it was released
	}
	if p.memory != nil && of == p.now {
		p.rings[wire.RingReleased].Put(&wire.Entry{Offset: e.Offset, Length: e.Length, Generation: e.Generation})
	}
	p.drop(of)
}

// released shows the frames that were given back to the daemon.
func (p *port) released() {
	if p.memory != nil {
		p.publish(wire.RingReleased)
	}
}
