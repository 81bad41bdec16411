package attached

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// Sender sends messages to a flow, each once and in order, over as many connections as necessary.
type Sender struct {
	p    *port
	free []place
	sent []sent // oldest first: not done
	last uint64 // sequence of the last message
	done uint64 // messages before this one were done when the port was opened
}

// place is a frame that the program may fill.
type place struct {
	offset     uint64
	generation uint32
}

// sent is a message that is not done.
type sent struct {
	sequence uint64
	data     []byte // in memory of the connection over which it was sent last
	place    place
}

// Frame is a piece of memory to fill with a message. Commit sends it, and Discard gives it back.
type Frame struct {
	// Data has room for the longest message of the flow.
	Data  []byte
	place place
	of    *link
}

// Receipt says what became of a message.
type Receipt struct {
	Sequence uint64 // of the message, as Commit returned it
	Position uint64 // in the flow's log; 0: there is none
	Err      error  // nil: it is as safe as the flow promises
}

// ErrFull says that all frames have messages that are not done.
var ErrFull = errors.New("no frame is free")

// Send opens a flow from this program. depth is how many messages may be under way at once, 0: as many as the flow
// allows.
func (k *Client) Send(flow string, depth int) (*Sender, error) {
	p, err := k.openPort(wire.Open{Flow: flow, Role: wire.Send, Depth: uint32(depth)})
	if err != nil {
		return nil, err
	}
	s := &Sender{p: p, last: p.said.Next - 1}
	s.collect(nil)
	return s, nil
}

// Next returns the sequence of the next message. Messages of the session before it are done.
func (s *Sender) Next() uint64 { return s.last + 1 }

// Claim returns a frame to fill. The error is ErrFull: Poll gets frames back.
func (s *Sender) Claim() (Frame, error) {
	if s.p.memory == nil {
		return Frame{}, ErrGone
	}
	n := len(s.free)
	if n == 0 {
		if s.collect(nil); len(s.free) == 0 {
			return Frame{}, ErrFull
		}
		n = len(s.free)
	}
	at := s.free[n-1]
	s.free = s.free[:n-1]
	l := s.p.link
	end := at.offset + uint64(min(s.p.said.Longest, l.frame))
	return Frame{l.out[at.offset:end:end], at, l}, nil
}

// Discard gives a frame back that is not sent.
func (s *Sender) Discard(f Frame) {
	if f.of == s.p.link {
		s.free = append(s.free, f.place)
	}
}

// Commit sends the first length bytes of a frame, and returns the sequence of the message. Until it is done, nothing
// may change them. A message whose frame was claimed before the daemon went away is sent, too.
func (s *Sender) Commit(f Frame, length int) (sequence uint64, err error) {
	if length < 1 || length > len(f.Data) {
		return 0, fmt.Errorf("send %d bytes: a message has from 1 to %d", length, len(f.Data))
	}
	if f.of != s.p.link { // the frame was claimed before the daemon went away
		now, err := s.Claim()
		if err != nil {
			return 0, err
		}
		copy(now.Data, f.Data[:length])
		f = now
	}
	s.last++
	one := sent{s.last, f.Data[:length], f.place}
	s.sent = append(s.sent, one)
	s.put(&one)
	return s.last, nil
}

// put submits a message that lies in memory of the present connection.
func (s *Sender) put(m *sent) {
	s.p.rings[wire.RingSubmitted].Put(&wire.Entry{Offset: m.place.offset, Length: uint32(len(m.data)), Generation: m.place.generation, Sequence: m.sequence})
	s.p.publish(wire.RingSubmitted)
}

// Poll returns what became of messages, at most len(dst). It never blocks.
func (s *Sender) Poll(dst []Receipt) (n int, err error) {
	if s.p.memory == nil {
		return 0, ErrGone
	}
	if n = s.collect(dst); n == 0 {
		return 0, s.p.err()
	}
	return n, nil
}

// collect takes frames back, and fills dst with what became of their messages. It leaves receipts that have no room
// in dst in the ring.
func (s *Sender) collect(dst []Receipt) (n int) {
	for len(s.sent) > 0 && s.sent[0].sequence < s.done && n < len(dst) {
		dst[n] = Receipt{Sequence: s.sent[0].sequence}
		s.sent = s.sent[:copy(s.sent, s.sent[1:])]
		n++
	}
	ring := s.p.rings[wire.RingDone]
	waiting, ok := ring.Waiting()
	if !ok {
		return n
	}
	for range waiting {
		if len(s.sent) > 0 && n == len(dst) {
			break
		}
		e := ring.Get()
		if e.Offset >= uint64(len(s.p.link.out)) {
			break
		}
		s.free = append(s.free, place{e.Offset, e.Generation})
		if e.Sequence == 0 || len(s.sent) == 0 || s.sent[0].sequence != e.Sequence {
			continue
		}
		s.sent = s.sent[:copy(s.sent, s.sent[1:])]
		dst[n] = Receipt{Sequence: e.Sequence, Position: e.Position}
		if e.Status != wire.None {
			dst[n].Err = e.Status
		}
		n++
	}
	ring.Advance()
	return n
}

// Wait waits until Poll has something to return, at most for a time. If the daemon is gone, it attaches again and
// sends again what was not done. The error is that of ctx, or says that the daemon does not want this program any
// more.
func (s *Sender) Wait(ctx context.Context, most time.Duration) error {
	if err := s.p.err(); err == nil {
		return s.p.sleep(ctx, wire.RingDone, most)
	}
	if s.p.memory != nil {
		if n, ok := s.p.rings[wire.RingDone].Waiting(); ok && n > 0 {
			return nil // what was done before
		}
	}
	return s.resume(ctx)
}

// resume opens the port on a new connection. Messages before the sequence that the flow expects are done; the others
// are copied into frames of the new connection and sent again.
func (s *Sender) resume(ctx context.Context) error {
	if err := s.p.reopen(ctx); err != nil {
		return err
	}
	s.free = s.free[:0]
	s.done = s.p.said.Next
	s.collectFree()
	for i := range s.sent {
		m := &s.sent[i]
		if m.sequence < s.done {
			continue // done: its receipt follows
		}
		if len(s.free) == 0 {
			return fmt.Errorf("%w: the flow has fewer frames for this program than before", ErrFull)
		}
		m.place = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		to := s.p.link.out[m.place.offset : m.place.offset+uint64(len(m.data))]
		copy(to, m.data)
		m.data = to
		s.put(m)
	}
	return nil
}

// collectFree takes the frames of a new connection.
func (s *Sender) collectFree() {
	ring := s.p.rings[wire.RingDone]
	n, _ := ring.Waiting()
	for range n {
		e := ring.Get()
		s.free = append(s.free, place{e.Offset, e.Generation})
	}
	ring.Advance()
}

// Unfinished returns how many messages are not done.
func (s *Sender) Unfinished() int { return len(s.sent) }

// Close ends the port. Messages that are not done may or may not be taken.
func (s *Sender) Close() error { return s.p.close() }
