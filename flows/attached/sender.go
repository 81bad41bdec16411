package attached

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// Sender sends messages to a flow, each once and in order, over as many connections as necessary. It belongs to one
// goroutine at a time.
type Sender struct {
	p       *port
	free    []place
	sent    []sent // oldest first: not done. Those at the end may be unsent
	first   int    // in sent: those before it are done
	unsent  int    // messages at the end of sent that no frame was free for when the port was opened anew
	last    uint64 // sequence of the last message
	done    uint64 // messages before this one were done when the port was opened
	claimed []bool // by number of the frame: the program fills it
	// kept has the generations, by offset, of frames that the program has filled since before the port was opened anew.
	kept   map[uint64]uint32
	stale  bool  // the port has ended and is not opened anew yet
	broken error // the port cannot go on
}

// place is a frame that the program may fill.
type place struct {
	offset     uint64
	generation uint32
}

// sent is a message that is not done.
type sent struct {
	sequence uint64
	data     []byte // in the frame; of a message that waits to be sent again: a copy
	place    place
	answer   answer
}

// answer is what a message answers: when that arrived, and when the program decided, in nanoseconds since 1970.
type answer struct{ arrived, decided uint64 }

// Frame is a piece of memory to fill with a message. Commit sends it, and Discard gives it back.
type Frame struct {
	// Data has room for the longest message of the flow. Its contents are what an earlier message left there.
	Data  []byte
	place place
	of    *opening
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
// allows. The error matches ErrGone, or is a *RefusedError, as that of Receive. The caller closes the Sender.
func (k *Client) Send(flow string, depth int) (*Sender, error) {
	p, err := k.openPort(wire.Open{Flow: flow, Role: wire.Send, Depth: uint32(depth)})
	if err != nil {
		return nil, err
	}
	s := &Sender{p: p, last: p.said.Next - 1, done: p.said.Next}
	s.takeFrames(false)
	return s, nil
}

// Next returns the sequence of the next message. Messages of the session before it are done.
func (s *Sender) Next() uint64 { return s.last + 1 }

// Claim returns a frame to fill, which is the program's until Commit or Discard. It never blocks. The error is ErrFull:
// Poll gets frames back; ErrGone: Wait opens the port again; or net.ErrClosed after Close.
func (s *Sender) Claim() (Frame, error) {
	switch {
	case s.p.memory == nil:
		return Frame{}, net.ErrClosed
	case s.stale:
		return Frame{}, ErrGone
	}
	if len(s.free) == 0 || s.unsent > 0 {
		s.collect(nil)
		if len(s.free) == 0 || s.unsent > 0 {
			return Frame{}, ErrFull
		}
	}
	at := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.claimed[s.number(at.offset)] = true
	s.p.now.held++
	return Frame{s.memory(at.offset), at, s.p.now}, nil
}

// number returns the number of a frame.
func (s *Sender) number(offset uint64) uint64 { return offset / uint64(s.p.link.frame) }

// memory returns the memory of a frame that a message may have.
func (s *Sender) memory(offset uint64) []byte {
	end := offset + uint64(min(s.p.said.Longest, s.p.link.frame))
	return s.p.link.out[offset:end:end]
}

// Discard gives a frame back that is not sent.
func (s *Sender) Discard(f Frame) {
	at, ok := s.present(&f)
	if ok {
		s.free = append(s.free, at)
	}
	s.forget(&f)
}

// present returns the place of a claimed frame, if the flow still has its memory.
func (s *Sender) present(f *Frame) (at place, ok bool) {
	switch {
	case f.of == nil || s.p.memory == nil || f.of.link.boot != s.p.link.boot:
		return place{}, false
	case f.of == s.p.now:
		return f.place, s.claimed[s.number(f.place.offset)]
	}
	generation, ok := s.kept[f.place.offset]
	return place{f.place.offset, generation}, ok
}

// forget says that the program does not fill a frame any more.
func (s *Sender) forget(f *Frame) {
	if f.of == nil {
		return
	}
	if s.p.memory != nil && f.of.link.boot == s.p.link.boot {
		s.claimed[s.number(f.place.offset)] = false
		delete(s.kept, f.place.offset)
	}
	s.p.drop(f.of)
	f.of = nil
}

// Commit sends the first length bytes of a frame, 1 to len(f.Data), and returns the sequence of the message: the
// sequences of a session count up from 1. The frame is the daemon's then. Until the message is done nothing may change
// its bytes: the daemon copies them at a time of its own, or, if it trusts the program, sends them from there. If the port was opened anew since Claim, the message is sent, too. The error is ErrFull if no frame
// is free for it then: Poll gets frames back, and Commit may be called again.
func (s *Sender) Commit(f Frame, length int) (sequence uint64, err error) {
	return s.commit(f, length, answer{})
}

// CommitAnswer is Commit of a message that answers a packet or message, whose Stamp is stamp. A flow to an exchange
// measures from then, and from this call, until the order leaves: see docs/how-to/orders.md.
func (s *Sender) CommitAnswer(f Frame, length int, stamp uint64) (sequence uint64, err error) {
	return s.commit(f, length, answer{stamp, uint64(time.Now().UnixNano())})
}

func (s *Sender) commit(f Frame, length int, a answer) (sequence uint64, err error) {
	switch {
	case f.of == nil || length < 1 || length > len(f.Data):
		return 0, fmt.Errorf("send %d bytes: a message in this frame has from 1 to %d", length, len(f.Data))
	case s.p.memory == nil:
		return 0, net.ErrClosed
	case length > int(s.p.said.Longest):
		return 0, fmt.Errorf("send %d bytes: a message of the flow has at most %d now", length, s.p.said.Longest)
	case s.stale || s.unsent > 0:
		return 0, ErrFull
	}
	at, ok := s.present(&f)
	switch {
	case !ok && f.of == s.p.now:
		return 0, errNotClaimed
	case !ok: // its memory is not the flow's any more
		other, err := s.Claim()
		if err != nil {
			return 0, err
		}
		copy(other.Data, f.Data[:length])
		s.forget(&f)
		f, at = other, other.place
	}
	s.forget(&f)
	s.last++
	s.sent = append(s.sent, sent{s.last, s.memory(at.offset)[:length], at, a})
	s.put(&s.sent[len(s.sent)-1])
	return s.last, nil
}

var errNotClaimed = errors.New("the frame is not claimed: it was committed or discarded")

// put submits a message that lies in its frame.
func (s *Sender) put(m *sent) {
	s.p.rings[wire.RingSubmitted].Put(&wire.Entry{
		Offset: m.place.offset, Length: uint32(len(m.data)), Generation: m.place.generation, Sequence: m.sequence, Position: m.answer.decided, Stamp: m.answer.arrived,
	})
	s.p.publish(wire.RingSubmitted)
}

// Poll returns what became of messages, at most len(dst), in the order of their sequences. It never blocks: 0 and no
// error mean that nothing is done since. Once all receipts that had come are returned, the error says why no more
// come: ErrGone, a *RefusedError, or net.ErrClosed after Close. Wait opens the port again, and goes on.
func (s *Sender) Poll(dst []Receipt) (n int, err error) {
	if s.p.memory == nil {
		return 0, net.ErrClosed
	}
	if n = s.collect(dst); n > 0 {
		return n, nil
	}
	if s.broken != nil {
		return 0, s.broken
	}
	return 0, s.p.err()
}

// collect takes frames back, and fills dst with what became of their messages. It leaves receipts that have no room
// in dst in the ring.
func (s *Sender) collect(dst []Receipt) (n int) {
	for s.first < len(s.sent) && s.sent[s.first].sequence < s.done && n < len(dst) {
		if dst[n] = (Receipt{Sequence: s.sent[s.first].sequence}); s.once() {
			dst[n].Err = wire.NotKnown
		}
		s.finish()
		n++
	}
	ring := s.p.rings[wire.RingDone]
	waiting, ok := ring.Waiting()
	if !ok {
		s.broken = wire.BadIndex
		return n
	}
	for range waiting {
		if s.first < len(s.sent) && n == len(dst) {
			break
		}
		e := ring.Get()
		if !s.valid(&e) {
			break
		}
		s.free = append(s.free, place{e.Offset, e.Generation})
		if e.Sequence == 0 {
			continue
		}
		if s.first == len(s.sent) || s.sent[s.first].sequence != e.Sequence {
			s.broken = wire.BadSequence
			break
		}
		s.finish()
		dst[n] = Receipt{Sequence: e.Sequence, Position: e.Position}
		if e.Status != wire.None {
			dst[n].Err = e.Status
		}
		n++
	}
	ring.Advance()
	s.sendRest()
	return n
}

// once reports whether the flow takes each message once, as one to an exchange does.
func (s *Sender) once() bool { return s.p.said.Align == wire.Once }

// finish removes the oldest message. It moves the others only if half of them are done.
func (s *Sender) finish() {
	if s.first++; 2*s.first >= len(s.sent) {
		s.sent = s.sent[:copy(s.sent, s.sent[s.first:])]
		s.first = 0
	}
}

// valid checks that an entry has a whole frame of the memory that this program writes.
func (s *Sender) valid(e *wire.Entry) bool {
	frame := uint64(s.p.link.frame)
	if frame == 0 || e.Offset%frame != 0 || e.Offset >= uint64(len(s.p.link.out)) || uint64(len(s.p.link.out))-e.Offset < frame {
		s.broken = wire.BadDescriptor
		return false
	}
	return true
}

// Wait waits until Poll has something to return, at most for a time. If the daemon is gone, it attaches again and
// sends again what was not done. Of a flow to an exchange it sends nothing again: the receipts of what was not done say
// that nobody knows whether it has left (not_known). The error is that of ctx, or says that the daemon does not want this program any
// more, or that the flow has lost messages that were done.
func (s *Sender) Wait(ctx context.Context, most time.Duration) error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.p.err(); err == nil {
		return s.p.sleep(ctx, wire.RingDone, most)
	}
	if s.p.memory != nil {
		if n, ok := s.p.rings[wire.RingDone].Waiting(); ok && n > 0 {
			return nil // what was done before
		}
	}
	return s.resume(ctx, most)
}

// resume opens the port anew. Messages before the sequence that the flow expects are done; the others are sent again. A
// flow that takes each message once expects none of them.
func (s *Sender) resume(ctx context.Context, most time.Duration) error {
	// The daemon that goes on has the same memory, and may give the frame of one message for another one.
	sent := s.sent[s.first:]
	for i := range sent[:len(sent)-s.unsent] {
		sent[i].data = slices.Clone(sent[i].data)
	}
	s.unsent, s.stale = len(sent), true
	boot := s.p.link.boot
	s.p.open.From = s.last + 1
	if len(sent) > 0 && !s.once() {
		s.p.open.From = sent[0].sequence
	}
	s.p.open.From = max(s.p.open.From, s.done)
	open, err := s.p.reopen(ctx, most)
	if !open {
		return err
	}
	s.stale, s.done = false, s.p.said.Next
	for s.unsent > 0 && sent[len(sent)-s.unsent].sequence < s.done {
		s.unsent-- // it is done: its receipt follows
	}
	s.takeFrames(boot == s.p.link.boot)
	oldest := s.last + 1
	if s.first < len(s.sent) {
		oldest = s.sent[s.first].sequence
	}
	if s.done < oldest || s.done > s.last+1 || s.once() && s.done <= s.last {
		s.broken = &RefusedError{wire.BadSequence.String(), fmt.Sprintf(
			"the flow expects message %d of the session next, and this program's next one is %d: the flow has lost messages that were done, or another program has used the session", s.done, oldest)}
		return s.broken
	}
	s.sendRest()
	return nil
}

// takeFrames takes the frames that come with a port. same says that they are of the same memory as before: then those
// that the program still fills stay with it.
func (s *Sender) takeFrames(same bool) {
	s.free = s.free[:0]
	s.kept = map[uint64]uint32{}
	if n := len(s.p.link.out) / max(1, int(s.p.link.frame)); !same || len(s.claimed) != n {
		s.claimed, same = make([]bool, n), false
	}
	ring := s.p.rings[wire.RingDone]
	n, ok := ring.Waiting()
	if !ok {
		s.broken = wire.BadIndex
		return
	}
	for range n {
		e := ring.Get()
		switch {
		case !s.valid(&e):
			return
		case same && s.claimed[s.number(e.Offset)]:
			s.kept[e.Offset] = e.Generation
		default:
			s.free = append(s.free, place{e.Offset, e.Generation})
		}
	}
	ring.Advance()
}

// sendRest sends messages again for which frames are free now.
func (s *Sender) sendRest() {
	for !s.stale && s.unsent > 0 && len(s.free) > 0 {
		m := &s.sent[len(s.sent)-s.unsent]
		if len(m.data) > int(s.p.said.Longest) {
			s.broken = &RefusedError{wire.TooLong.String(), fmt.Sprintf("message %d has %d bytes, and the flow takes at most %d now", m.sequence, len(m.data), s.p.said.Longest)}
			return
		}
		m.place = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		to := s.memory(m.place.offset)[:len(m.data)]
		copy(to, m.data)
		m.data = to
		s.put(m)
		s.unsent--
	}
}

// Unfinished returns how many messages are not done.
func (s *Sender) Unfinished() int { return len(s.sent) - s.first }

// Close ends the port. Messages that are not done may or may not be taken. Frames that are claimed must not be used any
// more.
func (s *Sender) Close() error { return s.p.close() }
