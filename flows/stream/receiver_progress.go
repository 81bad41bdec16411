package stream

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// slot is a place for one queue pair, with a frame for progress messages. A frame is the port's while its message is on its way, and there are
// spare ones for slots that need more at once: then what a peer is told next does not wait until the device is done with what it was told before,
// of which a peer that goes on at once need not say so each time. Where there are none, what is to be said is said by a later one, in the state it then has.
type slot struct {
	frame umem.Frame
	away  bool  // the frame is the port's
	busy  int   // messages on their way
	peer  *peer // nil: free
}

const (
	// mostTold is how many progress messages may be on their way to a peer: as many as RoCE in software has acknowledged at once, and one.
	mostTold = 9
	// mostSpares is how many spare frames there are at most, and spareShare which part of the region's: one in so many.
	mostSpares = 512
	spareShare = 32
)

func (c *ReceiverConfig) sparesWanted() int {
	return min(c.Peers*(mostTold-1), mostSpares, int(c.Endpoint.Region.Frames())/spareShare)
}

// takeSlots takes the frames for progress. Spare ones may be fewer.
func (r *Receiver) takeSlots() error {
	peers := r.config.Peers
	frames := make([]umem.Frame, peers+r.config.sparesWanted())
	n := r.config.Worker.Take(frames)
	if n < peers {
		r.config.Worker.Give(frames[:n])
		return fmt.Errorf("the pool has %d of %d frames for progress messages: open a larger region", n, peers)
	}
	r.slots, r.news, r.wants = make([]slot, peers), newSlotSet(peers), newSlotSet(peers)
	for i, f := range frames[:peers] {
		r.slots[i].frame = umem.Frame{Addr: f.Addr, Len: protocol.HeaderLen}
	}
	r.spares = frames[peers:n]
	return nil
}

// lend has a frame for a slot's next progress message, which restore takes back.
func (r *Receiver) lend(s *slot) (f umem.Frame, ok bool) {
	last := len(r.spares) - 1
	switch {
	case !s.away:
		s.away = true
		f = s.frame
	case s.busy < mostTold && last >= 0:
		f = umem.Frame{Addr: r.spares[last].Addr, Len: protocol.HeaderLen}
		r.spares = r.spares[:last]
	default:
		return f, false
	}
	s.busy++
	return f, true
}

func (r *Receiver) restore(s *slot, f umem.Frame) {
	s.busy--
	if f.Addr == s.frame.Addr {
		s.away = false
		return
	}
	r.spares = append(r.spares, umem.Frame{Addr: f.Addr, Len: protocol.HeaderLen})
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

// tell sends a peer the newest state, unless it is still being told older ones.
func (r *Receiver) tell(p *peer) {
	slot, s := &r.slots[p.slot], p.session
	f, ok := r.lend(slot)
	if !ok {
		r.short = true
		return
	}
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
		r.restore(slot, f)
		r.short = true
		return
	}
	p.saidAcknowledged, p.saidLimit, p.again, p.final = s.acknowledged, m.Limit, false, p.state == ending
	r.stats.own.progress++
}

// reap takes back the frames of progress messages, and reports whether there were some.
func (r *Receiver) reap() (some bool) {
	for {
		n := r.port.Reap(r.batch[:])
		for _, f := range r.batch[:n] {
			r.told(f)
		}
		if some = some || n > 0; n < batchSize {
			return some
		}
	}
}

// told notes how a progress message ended.
func (r *Receiver) told(f umem.Frame) {
	slot := &r.slots[r.region.Side(f).Token]
	r.restore(slot, f)
	p := slot.peer
	switch {
	case p == nil:
	case f.Options&umem.Failed != 0:
		p.saidAll()
		r.sendFailed(p)
	case p.final && slot.busy == 0:
		p.saidAll()
	}
}

// sendFailed ends a peer whose queue pair failed while it was told something. That this was flushed, and nothing of ours failed before, is no cause:
// the peer's device asked for what it was not granted, as inspect has it.
func (r *Receiver) sendFailed(p *peer) {
	cause := r.port.Cause(p.slot)
	if p.granted != nil && flushed(cause) && !p.state.ended() && !p.stopped {
		r.refuse(p, protocol.NotGranted)
		return
	}
	r.lose(p, cause)
}
