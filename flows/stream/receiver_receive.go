package stream

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// absorb processes the completions of the port, and returns their number.
func (r *Receiver) absorb() int {
	switch {
	case r.closed:
		return 0
	case r.config.Write:
		return r.absorbNotes()
	}
	n := r.port.Recv(r.batch[:])
	if r.polls++; n > 0 {
		r.polls = 0
	}
	r.posted -= n
	r.available -= n
	for _, f := range r.batch[:n] {
		if !r.take(f) {
			r.back.Push(f)
		}
	}
	return n
}

// take passes a message on, or keeps it until its turn. It reports whether it did.
func (r *Receiver) take(f umem.Frame) bool {
	p := r.peerOf(f)
	switch {
	case f.Options&umem.Failed != 0:
		r.receiveFailed(p)
		return false
	case p == nil || p.state.ended():
		r.stats.own.dropped++
		return false
	}
	message := r.region.Bytes(f)
	d, reason := r.check(message)
	if reason != protocol.None {
		r.refuse(p, reason)
		return false
	}
	return r.admit(p, &d, f)
}

// peerOf returns the peer of a frame, or nil if it no longer exists.
func (r *Receiver) peerOf(f umem.Frame) *peer {
	n := int(r.region.Side(f).Queue)
	if n >= len(r.slots) {
		return nil
	}
	return r.slots[n].peer
}

// check checks a message without its context.
func (r *Receiver) check(message []byte) (protocol.Data, protocol.Reason) {
	if uint64(len(message)) > uint64(r.config.Message) {
		return protocol.Data{}, protocol.TooLong
	}
	d, reason := protocol.ParseData(message)
	if reason == protocol.None && d.Origin.Session != 0 && !r.config.Origins {
		return d, protocol.BadReserved
	}
	if reason == protocol.None && r.config.Check && protocol.Checksum(message[protocol.HeaderLen:]) != d.Checksum {
		reason = protocol.BadPayload
	}
	return d, reason
}

// admit checks a message against what its peer may send next.
func (r *Receiver) admit(p *peer, d *protocol.Data, f umem.Frame) bool {
	s := p.session
	switch {
	case d.Session != s.id:
		r.refuse(p, protocol.BadSession)
	case d.Sequence <= s.taken:
		r.replayed(p)
	case d.Sequence > p.limit:
		r.refuse(p, protocol.BeyondCredit)
	case d.Sequence == s.taken+1:
		r.available++ // the credit was not used
		r.accept(p, f)
		return true
	case s.early == nil:
		r.refuse(p, protocol.BadSequence)
	case s.early.has(d.Sequence):
		r.replayed(p)
	default:
		r.available++
		r.keepEarly(p, d.Sequence, f)
		return true
	}
	return false
}

// accept passes a message on, and those that it was missing for.
func (r *Receiver) accept(p *peer, f umem.Frame) {
	s := p.session
	p.replays, p.moved = 0, true
	r.news.add(p.slot)
	r.wants.add(p.slot)
	if s.early == nil {
		r.pass(s, f)
		return
	}
	s.release(p, s.taken+1)
	r.pass(s, f)
	s.passEarly()
}

// pass counts a message that is passed on.
func (r *Receiver) pass(s *session, f umem.Frame) {
	s.taken++
	s.count.messages++
	s.count.bytes += uint64(f.Len)
	r.stats.own.messages++
	r.stats.own.bytes += uint64(f.Len)
	r.region.Side(f).Queue = s.number
	r.ready.Push(f)
}

// replaysMost is the maximum number of consecutive replays. A sender that ignores the hello stays
// below it, an attack does not.
const replaysMost = 1 << 14

// replayed drops a message that was accepted before. It makes the receiver send a progress message
// again.
func (r *Receiver) replayed(p *peer) {
	r.stats.own.replays++
	p.again = true
	r.news.add(p.slot)
	if p.replays++; p.replays > replaysMost {
		r.refuse(p, protocol.BadSequence)
	}
}

// receiveFailed ends a peer whose queue pair failed while receiving, because of a message that is
// too long or for another reason. If the receiver itself ended the peer, the cause is known
// already.
func (r *Receiver) receiveFailed(p *peer) {
	if p == nil || p.state.ended() || p.stopped {
		return
	}
	cause := r.port.Cause(p.slot)
	if p.granted != nil && (errors.Is(cause, rdma.LocalAccess) || errors.Is(cause, rdma.RemoteAccess) || errors.Is(cause, rdma.LocalQPOperation)) { // Soft-RoCE reports the second
		r.refuse(p, protocol.NotGranted)
		return
	}
	if errors.Is(cause, rdma.LocalLength) || errors.Is(cause, rdma.LocalQPOperation) { // Soft-RoCE reports the latter
		r.refuse(p, protocol.TooLong)
		return
	}
	r.lose(p, cause)
}
