package stream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// state is that of a peer's connection.
type state uint32

const (
	attached  state = iota // its queue pair is the port's; it is not known yet whether the peer is there
	connected              // it may be sent to
	ending                 // it is told why, and then ended
	failed                 // its queue pair does not work any more
	gone                   // the queue pair is closed
)

var stateNames = [...]string{"connecting", "connected", "ending", "failed", "disconnected"}

func (s state) String() string { return stateNames[s] }

// ended reports whether messages are not taken any more, and takes the contrary.
func (s state) ended() bool { return s >= ending }
func (s state) takes() bool { return s < ending }

// peer is one connection of a session. It is the worker's thread's, but for what says otherwise.
type peer struct {
	session *session
	name    string // for people; never changed, as what the hello says
	first   uint64 // sequence expected first
	window  uint32 // from there on, how many messages it may send at first
	queue   rdma.QueuePair
	slot    int
	state   state
	limit   uint64   // up to which it may send
	replays int      // in a row
	moved   bool     // a message came since Poll was called
	stopped bool     // its queue pair was put into Error
	granted *granted // what it may write to; nil of one that sends

	saidLimit        uint64 // what the peer was told last
	saidAcknowledged uint64
	again            bool // it is to be told again
	final            bool // the last word is on its way, or was said

	reason protocol.Reason // why it is ended; None where it was not refused
	cause  error           // what it ended of, for people; read by others once over is closed
	over   chan struct{}   // closed when it ends
	away   chan struct{}   // closed when it is detached; of the goroutine that serves it
	said   chan struct{}   // closed when the last word has arrived, or will not
}

// enter changes the state, and shows it.
func (p *peer) enter(s state) {
	p.state = s
	p.session.count.state.Store(uint32(s))
}

// saidAll notes that there is no more to be said.
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

// ErrOwner refuses a session that another owner has begun.
var ErrOwner = fmt.Errorf("%w: the session was begun by another", protocol.NotPermitted)

// grantedLimit is how many messages the peer may still send.
func (p *peer) grantedLimit() uint64 { return p.limit - p.session.taken }

// sendableCredits is the limit that it can be told.
func (p *peer) sendableCredits() uint64 {
	if p.granted != nil {
		return p.granted.made
	}
	return p.limit
}

// attach takes a queue pair in INIT for a sender, and promises it what there is. The queue pair is the receiver's with it, and the grants
// of one that is to write.
func (r *Receiver) attach(q rdma.QueuePair, g *rdma.Grants, w *sender, now int64) (*peer, error) {
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
	case s.peer != nil:
		return nil, fmt.Errorf("%w: the session is connected", protocol.Busy)
	}
	n, err := r.port.Attach(rdma.Peer{QueuePair: q, Message: protocol.MaxGrantLen, Grants: g})
	if err != nil {
		return nil, err
	}
	if begins {
		r.joins(index, w, s)
	}
	p := &peer{session: s, name: w.name, queue: q, slot: n, limit: s.taken, saidAcknowledged: s.acknowledged, over: make(chan struct{}), away: make(chan struct{}),
		said: make(chan struct{})}
	if g != nil {
		p.granted = newGranted(g, r.config.Window, s.taken)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.peer, s.seen, s.count.name, s.count.cause = p, now, w.name, nil
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

// replace stops the peer of a session that another connection has come for. The error says that the session is somebody
// else's.
func (r *Receiver) replace(id uint64, owner string) (old *peer, err error) {
	s := r.sessions.byID[id]
	if r.closed || s == nil || s.peer == nil {
		return nil, nil
	}
	if s.owner != owner {
		return nil, ErrOwner
	}
	return s.peer, r.stop(s.peer, errReplaced)
}

// activate notes that the peer can be sent to, and has it told at once what is acknowledged.
func (r *Receiver) activate(p *peer) error {
	if p.state == attached {
		p.enter(connected)
		p.again = true
		r.news.add(p.slot)
		r.stats.own.connected++
	}
	return nil
}

// refuse ends a peer that broke the rules. It is told the reason, as far as that can be done.
func (r *Receiver) refuse(p *peer, why protocol.Reason) {
	if p.state.ended() {
		return
	}
	r.stats.refused[why].Add(1)
	r.finish(p, why)
}

// finish ends a peer with a last word.
func (r *Receiver) finish(p *peer, why protocol.Reason) {
	if p.state.ended() {
		return
	}
	if p.final = p.state != connected; p.final {
		p.saidAll() // it cannot be told
	}
	p.reason = why
	r.over(p, ending, why)
}

// lose ends a peer whose queue pair failed. One that was to be told why it ends has that for its cause.
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

// over has whoever serves the peer take it down.
func (r *Receiver) over(p *peer, s state, cause error) {
	if r.takeBack(p); s == failed {
		p.saidAll()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.enter(s)
	p.cause, p.session.count.cause = cause, cause
	close(p.over)
}

// Reject takes a message back that Recv gave: it was not taken, nor any behind it. The peer of its session is told the reason and ended, and counts as
// refused; when it comes back it is asked for that message. Others of the session that Recv has given or still gives, up to that one, are the caller's to drop.
func (r *Receiver) Reject(session uint16, sequence uint64, why protocol.Reason) {
	s := r.sessions.at(session)
	if s == nil || sequence <= s.acknowledged || sequence > s.taken {
		return
	}
	if s.peer != nil {
		r.refuse(s.peer, why)
	}
	s.taken = sequence - 1
}

// stop has the device do nothing more for a peer, and takes what came until then. Receives that it has begun to fill come
// back.
func (r *Receiver) stop(p *peer, cause error) error {
	if r.closed || p.state == gone {
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

// drain takes all that came.
func (r *Receiver) drain() {
	for r.absorb() > 0 {
	}
}

// detach closes a peer's queue pair, a while after stop, and gives its place to others.
func (r *Receiver) detach(p *peer) error {
	if r.closed || p.state == gone {
		return nil
	}
	r.drain()
	if p.granted != nil {
		if err := p.granted.close(); err != nil {
			return err // it may still write to frames
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
	r.mu.Lock()
	defer r.mu.Unlock()
	p.enter(gone)
	p.session.peer = nil
	p.session.count.shown[shownGranted].Set(0)
	r.grant()
	return nil
}
