package stream

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// slot is a place for one queue pair. Its frame has places for progress messages, which are used in
// turn, so that the next message need not wait until the device has sent the one before. When all
// places are in flight, the next message is sent later, with the state of that time.
type slot struct {
	told int   // progress messages sent
	peer *peer // nil: free
}

const (
	// mostTold bounds the progress messages in flight to a peer. RoCE in software acknowledges 16
	// at once, and a few more complete later. With one more request they fill a send queue of 32,
	// which stays in the cache. With grants the frame has room for fewer.
	mostTold = 31
	// tellEvery is the number of messages per signaled one.
	tellEvery = 8
)

// progressBytes returns the length of the longest progress message.
func (c *ReceiverConfig) progressBytes() uint32 {
	if c.Write {
		return protocol.MaxGrantLen
	}
	return protocol.HeaderLen
}

// tells returns how many progress messages to each peer may be in flight: as many as fit in a frame
// and in the completion queue if all fail at once, but at least two.
func (c *ReceiverConfig) tells() int {
	room := int(c.Endpoint.Region.FrameSize() / c.progressBytes())
	completions := c.Endpoint.Device.Capabilities().MaxCompletions/c.Peers - c.requests()
	return max(2, min(mostTold, room, completions))
}

// requests returns the number of requests of a queue pair in addition to progress messages: those
// of grants, and one spare.
func (c *ReceiverConfig) requests() int {
	if c.Write {
		return 1 + grantRequests
	}
	return 1
}

// takeSlots takes the frames for progress messages.
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

// place returns the address for the next progress message of a slot.
func (r *Receiver) place(slot int) uint64 {
	return r.frames[slot].Addr + uint64(r.slots[slot].told%r.tells)*uint64(r.config.progressBytes())
}

// Acknowledge says that the messages of a session up to sequence have the configured Durability.
// position is the position of the last one in the log. The next Poll sends that to the peer. The
// receiver never revokes an acknowledgement, and ignores sequences that have not arrived.
func (r *Receiver) Acknowledge(session uint16, sequence, position uint64) {
	s := r.sessions.at(session)
	if s == nil || s.again || sequence <= s.acknowledged || sequence > s.taken {
		return
	}
	s.acknowledged, s.position = sequence, position
	if s.peer == nil { // otherwise Poll publishes it
		s.count.shown[shownAcknowledged].Set(sequence)
		return
	}
	for p := s.peer; p != nil; p = p.next { // each may fail before it has brought the news
		p.at.news.add(p.slot)
		if r.config.Unacknowledged > 0 {
			p.at.wants.add(p.slot)
		}
	}
}

// due reports whether a progress message is due. Credits alone are sent in groups, unless the peer
// has few left.
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
	return news >= quantum || news > 0 && p.saidLimit <= s.taken+quantum
}

// sendProgress sends the progress messages that are due, and publishes the peers' counters. Its
// cost depends on the number of peers with changes, not on the number of connected peers. It checks
// the grants of peers that write each time.
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

// tell sends a peer the newest state, unless too many older progress messages are in flight.
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

// reap processes the completions of progress messages.
func (r *Receiver) reap() {
	r.port.Reap(r.batch[:]) // returns none: progress messages do not use frames of the port
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

// untold records that a progress message failed.
func (r *Receiver) untold(slot int) {
	if p := r.slots[slot].peer; p != nil {
		p.saidAll()
		r.sendFailed(p)
	}
}

// sendFailed ends a peer whose queue pair failed while a progress message was in flight. If the
// message was only flushed, and no local request failed before, the peer's device tried an access
// that was not granted: see inspect.
func (r *Receiver) sendFailed(p *peer) {
	cause := r.port.Cause(p.slot)
	if p.granted != nil && flushed(cause) && !p.state.ended() && !p.stopped {
		r.refuse(p, protocol.NotGranted)
		return
	}
	r.lose(p, cause)
}
