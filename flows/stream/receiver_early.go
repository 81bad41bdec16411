package stream

import (
	"github.com/unifiedd/unifiedd/umem"
)

// A session that uses several paths at the same time has a peer for each. They bring its messages in any order. A message
// that comes before its turn is early: the receiver keeps it until the ones before it have come.
//
// Each peer has a limit of its own, and its device keeps a receive for each message of the session up to that limit that
// has not come. When one path has brought a message, the devices of the others use the receives that they kept for it
// otherwise. So the next message of a session always finds a receive at a path whose limit allows it, however many wait:
// these came into receives that were kept for them. A peer without credits gets the first one before others get more. A
// limit is at most a window above the last message that was passed on, and so is each message that waits.

// early has the messages of a session that wait for their turn, by sequence.
type early struct {
	items []earlyMessage
	count int
}

type earlyMessage struct {
	frame umem.Frame
	at    *Receiver // it came there; nil: there is no message
}

func newEarly(window int) *early { return &early{items: make([]earlyMessage, powerOfTwo(window))} }

// at returns the place of a sequence that is at most a window above the last one that was passed on.
func (e *early) at(sequence uint64) *earlyMessage { return &e.items[sequence&uint64(len(e.items)-1)] }

func (e *early) has(sequence uint64) bool { return e.at(sequence).at != nil }

// between returns how many messages after one sequence and up to another wait. e may be nil: none does.
func (e *early) between(after, to uint64) (n int) {
	if e == nil || e.count == 0 {
		return 0
	}
	for sequence := after + 1; sequence <= to; sequence++ {
		if e.has(sequence) {
			n++
		}
	}
	return n
}

// promised returns how many receives the device keeps for the peer.
func (p *peer) promised() int {
	return int(p.grantedLimit()) - p.session.early.between(p.session.taken, p.limit)
}

// keepEarly keeps a message until its turn.
func (r *Receiver) keepEarly(p *peer, sequence uint64, f umem.Frame) {
	e := p.session.early
	*e.at(sequence) = earlyMessage{f, r}
	e.count++
	r.early++
	r.stats.own.early++
	p.replays, p.moved = 0, true
	r.news.add(p.slot)
	p.session.release(p, sequence)
}

// release gives back the credits of the other peers for a message that has come over one path.
func (s *session) release(by *peer, sequence uint64) {
	for p := s.peer; p != nil; p = p.next {
		if p != by && p.state.takes() && sequence <= p.limit {
			p.at.available++
			p.at.freed = true
		}
	}
}

// passEarly passes on the messages whose turn it is now. All peers may then get more credits.
func (s *session) passEarly() {
	for s.early.count > 0 {
		m := s.early.at(s.taken + 1)
		if m.at == nil {
			break
		}
		at, f := m.at, m.frame
		*m = earlyMessage{}
		s.early.count--
		at.early--
		at.pass(s, f)
	}
	for p := s.peer; p != nil; p = p.next {
		p.at.news.add(p.slot)
		p.at.wants.add(p.slot)
		p.at.freed = true
	}
}

// dropEarly drops the messages that wait: no peer is left, or the flow has refused a message before them. The sender
// sends again what is not acknowledged.
func (s *session) dropEarly() {
	if s.early == nil || s.early.count == 0 {
		return
	}
	for i := range s.early.items {
		if m := &s.early.items[i]; m.at != nil {
			m.at.early--
			m.at.back.Push(m.frame)
			*m = earlyMessage{}
		}
	}
	s.early.count = 0
}

// giveEarly gives the frames of all messages that wait back to the region.
func (r *Receiver) giveEarly() {
	if r.sessions == nil {
		return
	}
	for _, s := range r.sessions.byID {
		if s.early == nil {
			continue
		}
		for i := range s.early.items {
			if m := &s.early.items[i]; m.at != nil {
				r.one[0] = m.frame
				r.config.Worker.Give(r.one[:])
				*m = earlyMessage{}
			}
		}
		s.early.count = 0
	}
}

// add adds a peer that is attached.
func (s *session) add(p *peer, window int) {
	if p.several && s.early == nil {
		s.early = newEarly(window)
	}
	p.next, s.peer = s.peer, p
}

// remove removes a peer that is detached. Without a peer nothing waits.
func (s *session) remove(p *peer) {
	for at := &s.peer; *at != nil; at = &(*at).next {
		if *at == p {
			*at = p.next
			break
		}
	}
	if p.next = nil; s.peer == nil {
		s.dropEarly()
		s.early = nil
	}
}

// rival returns a peer that must be gone before a sender is connected; nil: there is none. Two connections of a session
// stand beside each other only if both say so, and each has a path of its own.
func (s *session) rival(w *sender) *peer {
	for p := s.peer; p != nil; p = p.next {
		if !p.several || !w.several || p.path == w.path {
			return p
		}
	}
	return nil
}

// connected reports whether a peer of the session is connected.
func (s *session) connected() bool {
	for p := s.peer; p != nil; p = p.next {
		if p.state == connected {
			return true
		}
	}
	return false
}

// shownState returns the state of a session of which a peer enters a state.
func (s *session) shownState(next state) state {
	if s.connected() {
		return connected
	}
	return next
}

// shownLimit returns the last sequence that the session may send.
func (p *peer) shownLimit() uint64 {
	limit := p.sendableCredits()
	for q := p.session.peer; q != nil && p.several; q = q.next {
		limit = max(limit, q.limit)
	}
	return limit
}
