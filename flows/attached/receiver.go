package attached

import (
	"context"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// Receiver gets packets or messages of a flow.
type Receiver struct {
	p *port
}

// Message is a packet or message in memory that the daemon has written. The program owns it until Release.
type Message struct {
	// Data is read-only: writing faults. Once the port has ended, the daemon may write there again.
	Data []byte
	// Position counts the packets or messages of the flow from 1 on: a gap means that this program lost some.
	Position uint64
	// Sequence is the sender's, of messages.
	Sequence uint64
	// Stamp is when it arrived: nanoseconds since 1970.
	Stamp uint64

	entry wire.Entry
	of    *opening
}

// Receive opens a flow to this program. depth is how many packets or messages it may hold at once, 0: as many as the
// flow allows.
func (k *Client) Receive(flow string, depth int) (*Receiver, error) {
	p, err := k.openPort(wire.Open{Flow: flow, Role: wire.Receive, Depth: uint32(depth)})
	if err != nil {
		return nil, err
	}
	return &Receiver{p: p}, nil
}

// Poll returns what has come, at most len(dst). It never blocks.
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

// Release gives packets or messages back. Those that came before the port was opened anew are the daemon's already.
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
