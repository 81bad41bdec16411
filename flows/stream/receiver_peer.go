package stream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/mr"
	"github.com/unifiedd/unifiedd/rdma/msg"
)

// state is the state of a peer's connection.
type state uint32

const (
	attached  state = iota // the port has its queue pair; the connection is not established yet
	connected              // the receiver may send to it
	ending                 // the final message is being sent
	failed                 // its queue pair is in Error
	gone                   // the queue pair is closed
)

var stateNames = [...]string{"connecting", "connected", "ending", "failed", "disconnected"}

func (s state) String() string { return stateNames[s] }

// ended reports whether its messages are no longer accepted.
func (s state) ended() bool { return s >= ending }
func (s state) takes() bool { return s < ending }

// peer is one connection of a session. It belongs to the worker's thread, except where a field says
// otherwise.
type peer struct {
	session *session
	next    *peer     // of the same session, over another path
	several bool      // the session may have other peers, each over a path of its own
	path    uint32    // its number then
	at      *Receiver // whose queue pair it is: one of those with this table of sessions
	name    string    // for logs and status; never changes
	first   uint64    // first expected sequence
	window  uint32    // messages that it may send at first
	queue   rdma.QueuePair
	slot    int
	state   state
	limit   uint64   // up to which it may send
	replays int      // consecutive ones
	moved   bool     // a message has arrived since the last Poll
	stopped bool     // its queue pair was put into Error
	parted  bool     // its queue pair is being closed
	granted *granted // frames that it may write; nil if it sends

	saidLimit        uint64 // the last limit that was sent to the peer
	saidAcknowledged uint64
	again            bool // the last progress message must be repeated
	final            bool // the final message is posted

	reason protocol.Reason // of the refusal; None if it was not refused
	cause  error           // of its end; other goroutines may read it after over is closed
	over   chan struct{}   // closed when it ends
	away   chan struct{}   // closed when it is detached, by the goroutine that serves it
	said   chan struct{}   // closed when the final message has arrived, or cannot arrive
}

// enter changes the state and publishes the new one.
func (p *peer) enter(s state) {
	p.state = s
	p.session.count.state.Store(uint32(p.session.shownState(s)))
}

// saidAll records that the final message has arrived or cannot be sent.
func (p *peer) saidAll() {
	select {
	case <-p.said:
	default:
		close(p.said)
	}
}

var (
	errReplaced = errors.New("the session came back by another connection")
	errFailed   = errors.New("its queue pair failed")
)

// ErrOwner refuses a session that a peer with another certificate began.
var ErrOwner = fmt.Errorf("%w: the session was begun by another", protocol.NotPermitted)

// grantedLimit returns how many messages the peer may still send. Other paths may have brought more than it may.
func (p *peer) grantedLimit() uint64 { return max(p.limit, p.session.taken) - p.session.taken }

// sendableCredits returns the limit that the next progress message can state.
func (p *peer) sendableCredits() uint64 {
	if p.granted != nil {
		return p.granted.made
	}
	return p.limit
}

// attach takes over a queue pair in INIT for a sender, together with its grants if it writes. It
// gives the peer its first credits.
func (r *Receiver) attach(q rdma.QueuePair, g *mr.Cache, w *sender, now int64) (*peer, error) {
	switch {
	case r.closed:
		return nil, errClosed
	case len(r.peers) == len(r.slots):
		return nil, fmt.Errorf("%w: there are %d peers, as many as there may be", protocol.Busy, len(r.peers))
	}
	index, begins, err := r.identify(w)
	if err != nil {
		return nil, err
	}
	s, err := r.sessionOf(w.session, w.owner, w.next)
	switch {
	case err != nil:
		return nil, err
	case s.rival(w) != nil:
		return nil, fmt.Errorf("%w: the session is connected", protocol.Busy)
	}
	n, err := r.port.Attach(msg.Peer{QueuePair: q, Message: protocol.MaxGrantLen, Grants: g})
	if err != nil {
		return nil, err
	}
	if begins {
		r.joins(index, w, s)
	}
	p := &peer{session: s, several: w.several, path: w.path, at: r, name: w.name, queue: q, slot: n, limit: s.taken, saidAcknowledged: s.acknowledged, over: make(chan struct{}), away: make(chan struct{}),
		said: make(chan struct{})}
	if g != nil {
		p.granted = newGranted(g, r.config.Window, s.taken)
	}
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	s.add(p, r.config.Window)
	s.seen, s.count.name, s.count.cause = now, w.name, nil
	p.enter(attached)
	r.slots[n].peer = p
	r.peers = append(r.peers, p)
	r.news.add(n)
	r.wants.add(n)
	r.grant()
	p.saidLimit = p.sendableCredits()
	p.first, p.window = s.taken+1, uint32(p.saidLimit-s.taken)
	return p, nil
}

// replace stops a peer of a session that a new connection replaces; nil: there is none. It fails if the session belongs
// to another certificate.
func (r *Receiver) replace(w *sender) (old *peer, err error) {
	s := r.sessions.byID[w.session]
	if r.closed || s == nil || s.peer == nil {
		return nil, nil
	}
	if s.owner != w.owner {
		return nil, ErrOwner
	}
	if old = s.rival(w); old == nil {
		return nil, nil
	}
	return old, old.at.stop(old, errReplaced)
}

// activate marks the peer as connected, and sends it a progress message at once.
func (r *Receiver) activate(p *peer) error {
	if p.state == attached {
		p.enter(connected)
		p.again = true
		r.news.add(p.slot)
		r.stats.own.connected++
	}
	return nil
}

// refuse ends a peer that broke the protocol, and sends it the reason if possible.
func (r *Receiver) refuse(p *peer, why protocol.Reason) {
	if p.state.ended() {
		return
	}
	r.stats.refused[why].Add(1)
	r.finish(p, why)
}

// finish ends a peer with a final message.
func (r *Receiver) finish(p *peer, why protocol.Reason) {
	if p.state.ended() {
		return
	}
	if p.final = p.state != connected; p.final {
		p.saidAll() // the final message cannot be sent
	}
	p.reason = why
	r.over(p, ending, why)
}

// lose ends a peer whose queue pair failed. If the peer was already ending, the first cause stays.
func (r *Receiver) lose(p *peer, cause error) {
	switch {
	case p.state == ending:
		p.enter(failed)
	case !p.state.ended():
		if cause == nil {
			cause = errFailed
		}
		r.stats.own.failed++
		r.over(p, failed, cause)
	}
}

// over makes the goroutine that serves the peer take down its connection.
func (r *Receiver) over(p *peer, s state, cause error) {
	if r.takeBack(p); s == failed {
		p.saidAll()
	}
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	p.enter(s)
	if p.cause = cause; !p.session.connected() {
		p.session.count.cause = cause
	}
	close(p.over)
}

// Reject refuses a message from Recv: the flow processed neither it nor any later one. The receiver
// sends the peer the reason, ends it and counts it as refused. When the peer reconnects, it must
// begin with that message. The caller must drop the later messages of the session that Recv has
// returned or still returns.
func (r *Receiver) Reject(session uint16, sequence uint64, why protocol.Reason) {
	s := r.sessions.at(session)
	if s == nil || sequence <= s.acknowledged || sequence > s.taken {
		return
	}
	told := false
	for p := s.peer; p != nil; p = p.next { // what the other paths bring is later
		if !told && !p.state.ended() {
			told = true
			p.at.refuse(p, why)
		}
		p.at.finish(p, why)
	}
	s.dropEarly()
	s.taken = sequence - 1
}

// stop puts a peer's queue pair into Error and processes what has arrived until then. Receives that
// the device had begun to fill return.
func (r *Receiver) stop(p *peer, cause error) error {
	if r.closed || p.state == gone || p.parted {
		return nil
	}
	p.stopped = true
	err := p.queue.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState)
	if p.granted != nil && err == nil {
		err = p.granted.close()
	}
	r.drain()
	if !p.state.ended() {
		r.over(p, failed, cause)
	}
	return err
}

// drain processes everything that has arrived.
func (r *Receiver) drain() {
	for r.absorb() > 0 {
	}
}

// part returns a function that closes a peer's queue pair, some time after stop; nil: there is none.
func (r *Receiver) part(p *peer) (closeQueue func() error, err error) {
	if r.closed || p.state == gone {
		return nil, nil
	}
	r.drain()
	if p.granted != nil {
		if err := p.granted.close(); err != nil {
			return nil, err // the peer may still write to frames
		}
	}
	p.parted = true
	return r.port.Part(p.slot)
}

// detach frees a peer's slot after its queue pair was closed.
func (r *Receiver) detach(p *peer) error {
	if r.closed || p.state == gone {
		return nil
	}
	r.drain()
	if p.granted != nil && !p.parted {
		if err := p.granted.close(); err != nil {
			return err // the peer may still write to frames
		}
	}
	if err := r.port.Detach(p.slot); err != nil {
		return err
	}
	if p.granted != nil {
		r.unassign(p)
	}
	r.slots[p.slot].peer = nil
	r.reap()
	r.peers = slices.DeleteFunc(r.peers, func(o *peer) bool { return o == p })
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	p.enter(gone)
	p.session.remove(p)
	p.session.count.shown[shownGranted].Set(0)
	r.grant()
	return nil
}
