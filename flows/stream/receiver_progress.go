package stream

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// slot is a place for one queue pair, with a frame of its own that progress messages are sent from, one behind the other: what a peer is told
// next need not wait until the device is done with what it was told before, of which a peer that goes on at once need not say so each time.
// When all of the frame's places are under way, what is to be said is said later, in the state it then has.
type slot struct {
	told int   // progress messages so far
	peer *peer // nil: free
}

const (
	// mostTold is how many progress messages may be on their way to a peer: RoCE in software has 16 acknowledged at once, and that a few
	// more are is known later. With one request more they fill a send queue of 32, whose memory is gone through again and again. Where grants are made the
	// frame has room for fewer.
	mostTold = 31
	// tellEvery is how many there are to one that the device tells of.
	tellEvery = 8
)

// progressBytes is how much room the longest progress message takes.
func (c *ReceiverConfig) progressBytes() uint32 {
	if c.Write {
		return protocol.MaxGrantLen
	}
	return protocol.HeaderLen
}

// tells is how many progress messages may be on their way to each peer: as many as have room in a frame, and may all fail at once, but two at least.
func (c *ReceiverConfig) tells() int {
	room := int(c.Endpoint.Region.FrameSize() / c.progressBytes())
	completions := c.Endpoint.Device.Capabilities().MaxCompletions/c.Peers - c.requests()
	return max(2, min(mostTold, room, completions))
}

// requests is how many requests a peer's queue pair has under way besides progress messages: its grants', and one more for good measure.
func (c *ReceiverConfig) requests() int {
	if c.Write {
		return 1 + grantRequests
	}
	return 1
}

// takeSlots takes the frames that progress messages are sent from.
func (r *Receiver) takeSlots() (err error) {
	c := &r.config
	if r.own, err = c.Worker.Book().NewHolder(umem.OwnerRDMA, "receiver "+c.Name); err != nil {
		return err
	}
	r.frames = make([]umem.Frame, c.Peers)
	if n := r.own.Take(r.frames); n < len(r.frames) {
		return fmt.Errorf("the pool has %d of %d frames for progress messages: open a larger region", n, len(r.frames))
	}
	r.slots, r.news, r.wants, r.lasts = make([]slot, c.Peers), newSlotSet(c.Peers), newSlotSet(c.Peers), newSlotSet(c.Peers)
	return nil
}

// place is where the next progress message of a slot is made.
func (r *Receiver) place(slot int) uint64 {
	return r.frames[slot].Addr + uint64(r.slots[slot].told%r.tells)*uint64(r.config.progressBytes())
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
		s.count.shown[shownAcknowledged].Set(sequence)
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
	news := p.sendableCredits() - p.saidLimit
	return news >= quantum || news > 0 && p.saidLimit-s.taken <= quantum
}

// sendProgress tells peers that something is due to, and shows what became of those. A round costs what has happened, and not
// what is connected, but for peers that write, whose grants are looked at each time.
func (r *Receiver) sendProgress(now time.Time) {
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

// tell sends a peer the newest state, unless it is still being told too many older ones.
func (r *Receiver) tell(p *peer) {
	slot, s := &r.slots[p.slot], p.session
	if r.port.UnderWay(p.slot) >= r.tells {
		r.short = true
		return
	}
	at, length, last := r.place(p.slot), uint32(protocol.HeaderLen), p.state == ending
	m := protocol.Progress{Sequence: s.acknowledged, Position: s.position, Limit: p.limit, Session: s.id, Status: p.reason}
	if p.granted == nil {
		protocol.PutProgress(r.region.At(at, protocol.HeaderLen), &m)
	} else {
		length = r.credits(p, r.region.At(at, protocol.MaxGrantLen), &m)
	}
	if !r.port.SendControl(p.slot, at, length, last || slot.told%min(tellEvery, r.tells) == 0) {
		r.short = true
		return
	}
	slot.told++
	p.saidAcknowledged, p.saidLimit, p.again, p.final = s.acknowledged, m.Limit, false, last
	if last {
		r.lasts.add(p.slot)
	}
	r.stats.own.progress++
}

// reap finds out how progress messages ended.
func (r *Receiver) reap() {
	r.port.Reap(r.batch[:]) // none: they are sent from no frame of the port's
	for n := r.port.Broken(r.numbers[:]); n > 0; n = r.port.Broken(r.numbers[:]) {
		for _, slot := range r.numbers[:n] {
			r.untold(slot)
		}
	}
	for n := r.lasts.next(0, len(r.slots)); n >= 0; n = r.lasts.next(n+1, len(r.slots)) {
		if p := r.slots[n].peer; p == nil || r.port.UnderWay(n) == 0 {
			r.lasts.remove(n)
			if p != nil {
				p.saidAll()
			}
		}
	}
}

// untold notes that a peer could not be told something.
func (r *Receiver) untold(slot int) {
	if p := r.slots[slot].peer; p != nil {
		p.saidAll()
		r.sendFailed(p)
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
