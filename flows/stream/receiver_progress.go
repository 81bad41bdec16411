package stream

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// slot is a place for one queue pair, with the frame for progress messages. A message is on its way, and its frame the
// port's, while it is busy; what is to be said meanwhile is said by the next one, in the state it then has.
type slot struct {
	frame umem.Frame
	busy  bool
	peer  *peer // nil: free
}

// takeSlots takes the frames for progress.
func (r *Receiver) takeSlots() error {
	frames := make([]umem.Frame, r.config.Peers)
	n := r.config.Worker.Take(frames)
	if n < len(frames) {
		r.config.Worker.Give(frames[:n])
		return fmt.Errorf("the pool has %d of %d frames for progress messages: open a larger region", n, len(frames))
	}
	r.slots, r.news, r.wants = make([]slot, len(frames)), newSlotSet(len(frames)), newSlotSet(len(frames))
	for i, f := range frames {
		r.slots[i].frame = umem.Frame{Addr: f.Addr, Len: protocol.HeaderLen}
	}
	return nil
}

// Acknowledge says that the messages of a session up to a sequence are what Durability promises, and where in the log the last
// one is. The session is told by Poll. What was acknowledged before stays so; sequences that never came are not acknowledged.
func (r *Receiver) Acknowledge(session uint16, sequence, position uint64) {
	s := r.sessions.at(session)
	if s == nil || sequence <= s.acknowledged || sequence > s.taken {
		return
	}
	s.acknowledged, s.position = sequence, position
	if s.peer == nil { // else it is shown by Poll
		s.count.shown[shownAcknowledged].Store(sequence)
		return
	}
	r.news.add(s.peer.slot)
	if r.config.Unacknowledged > 0 {
		r.wants.add(s.peer.slot)
	}
}

// due reports whether the peer is to be told something. Credits alone are told in lots, unless it has few left.
func (p *peer) due(quantum uint64) bool {
	s := p.session
	switch {
	case p.state == ending:
		return !p.final
	case p.state != connected:
		return false
	case p.again || s.acknowledged > p.saidAcknowledged:
		return true
	}
	news := p.sayable() - p.saidLimit
	return news >= quantum || news > 0 && p.saidLimit-s.taken <= quantum
}

// tellAll tells peers that something is due to, and shows what became of those. A round costs what has happened, and not
// what is connected, but for peers that write, whose grants are looked at each time.
func (r *Receiver) tellAll(now time.Time) {
	end := len(r.slots)
	for n := r.news.next(0, end); n >= 0; n = r.news.next(n+1, end) {
		p := r.slots[n].peer
		if p == nil {
			r.news.remove(n)
			continue
		}
		if p.granted != nil {
			r.extend(p)
		}
		if p.due(r.quantum()) {
			r.tell(p)
		}
		p.publish(now)
		if p.granted == nil && !p.due(r.quantum()) {
			r.news.remove(n)
		}
	}
}

// tell sends a peer the newest state, unless it is still being told an older one.
func (r *Receiver) tell(p *peer) {
	slot := &r.slots[p.slot]
	if slot.busy {
		return
	}
	s, f := p.session, slot.frame
	m := protocol.Progress{Sequence: s.acknowledged, Position: s.position, Limit: p.limit, Session: s.id, Status: p.reason}
	if p.granted == nil {
		protocol.PutProgress(r.region.Bytes(f), &m)
	} else {
		f.Len = r.credits(p, r.region.At(f.Addr, protocol.MaxGrantLen), &m)
	}
	side := r.region.Side(f)
	side.Queue, side.Token = uint16(p.slot), uint64(p.slot)
	r.one[0] = f
	if r.port.Send(r.one[:]) == 0 {
		return
	}
	slot.busy = true
	p.saidAcknowledged, p.saidLimit, p.again, p.final = s.acknowledged, m.Limit, false, p.state == ending
	r.stats.own.progress++
}

// reap takes back the frames of progress messages.
func (r *Receiver) reap() {
	for {
		n := r.port.Reap(r.batch[:])
		for _, f := range r.batch[:n] {
			r.told(f)
		}
		if n < batchSize {
			return
		}
	}
}

// told notes how a progress message ended.
func (r *Receiver) told(f umem.Frame) {
	slot := &r.slots[r.region.Side(f).Token]
	slot.busy = false
	p := slot.peer
	switch {
	case p == nil:
	case f.Options&umem.Failed != 0:
		p.saidAll()
		r.lose(p, r.port.Cause(p.slot))
	case p.final:
		p.saidAll()
	}
}
