package stream

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// session is the state of a sender's session, connected or not.
type session struct {
	id      uint64
	number  uint16 // in the table; Side.Queue of its messages
	owner   string // name of the certificate with which it began; empty without TLS
	ownerID uint64 // its protocol.OwnerOf
	// participant is one of the senders whose messages a flow combines. Its certificate's name and the
	// number in its hello identify it, so that it keeps its index when it restarts with a new session.
	participant  int    // index, if there are participants
	first        uint64 // value of taken at the beginning of this run
	taken        uint64 // the highest sequence accepted; all earlier ones are accepted, too
	acknowledged uint64
	position     uint64 // in the log, of the last acknowledged one
	peer         *peer  // nil: not connected; peer.next is another one of a session with several paths
	early        *early // nil: messages come over one path, in order
	again        bool   // its state is asked for anew when it comes back: see Receiver.Restart
	seen         int64  // time of the last message or connection: nanoseconds since 1970
	count        sessionCounters
}

// idle reports whether the receiver may forget the session: it is not connected, and all its
// messages are acknowledged.
func (s *session) idle() bool { return s.peer == nil && (s.again || s.acknowledged == s.taken) }

// used reports whether a message was accepted in this run. If not, Next returns the same state
// again.
func (s *session) used() bool { return s.taken != s.first }

// sessions holds the sessions of this run, by ID and by number. Their number is limited. A new
// session replaces the one that was quiet for longest: a session that sent nothing in this run, or
// else one that sent nothing for sessionTime. A sender whose session is forgotten may send messages
// twice. If neither exists, the receiver therefore refuses the new session.
type sessions struct {
	byID map[uint64]*session
	list []*session // by number
	most int
	name uint32     // random: see protocol.Hello.Path
	mu   sync.Mutex // guards what Stats reads of sessions and peers, except counters
}

// sessionsMost is the least limit of the number of sessions, connected or not.
const sessionsMost = 1024

// sessionTime is the time for which the receiver at least remembers a session after its last
// message.
const sessionTime = time.Hour

func newSessions(peers int) *sessions {
	return &sessions{byID: make(map[uint64]*session), most: max(sessionsMost, 2*peers), name: uint32(newSession()) | 1}
}

// at returns the session with a number, nil if there is none. A receiver that is not open has no table.
func (t *sessions) at(number uint16) *session {
	if t == nil || int(number) >= len(t.list) {
		return nil
	}
	return t.list[number]
}

// place returns a number for a new session. If the table is full, the caller must forget oldest.
func (t *sessions) place() (number int, oldest *session, ok bool) {
	if len(t.list) < t.most {
		t.list = append(t.list, nil)
		return len(t.list) - 1, nil, true
	}
	since := time.Now().Add(-sessionTime).UnixNano()
	for _, s := range t.list {
		if !s.idle() || s.used() && s.seen > since {
			continue
		}
		if oldest == nil || oldest.used() && !s.used() || oldest.used() == s.used() && s.seen < oldest.seen {
			oldest = s
		}
	}
	if oldest == nil {
		return 0, nil, false
	}
	delete(t.byID, oldest.id)
	return int(oldest.number), oldest, true
}

// Session returns the owner of a known session, and the last accepted sequence. It belongs to the
// worker's thread.
func (r *Receiver) Session(id uint64) (owner string, taken uint64, known bool) {
	if r.sessions == nil { // not open
		return "", 0, false
	}
	if s := r.sessions.byID[id]; s != nil {
		return s.owner, s.taken, true
	}
	return "", 0, false
}

// OwnerID returns [protocol.OwnerOf] of the certificate that began the session with a number. It
// belongs to the worker's thread.
func (r *Receiver) OwnerID(number uint16) uint64 {
	if s := r.sessions.at(number); s != nil {
		return s.ownerID
	}
	return 0
}

// sessionOf returns the session with an ID, and makes it if it is not known. from is the sequence
// at which its sender can continue.
func (r *Receiver) sessionOf(id uint64, owner string, from uint64) (*session, error) {
	t := r.sessions
	if s := t.byID[id]; s != nil {
		if s.owner != owner {
			return nil, ErrOwner
		}
		if !s.again || s.peer != nil {
			return s, nil
		}
		next, err := r.config.Next(id, owner)
		if err != nil {
			return nil, err
		}
		s.first, s.taken, s.acknowledged, s.position, s.again = next-1, next-1, next-1, 0, false
		return s, nil
	}
	next, err := r.config.Next(id, owner)
	if err != nil {
		return nil, err
	}
	if r.config.Resume && next == 1 {
		next = max(from, 1)
	}
	if next == 0 {
		return nil, errors.New("the flow expects sequence 0 of the session: sequences begin with 1")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	number, forgotten, ok := t.place()
	if !ok {
		return nil, fmt.Errorf("%w: all %d sessions are connected, owed acknowledgements, or have sent within %v", protocol.Busy, t.most, sessionTime)
	}
	if forgotten != nil {
		r.config.Forgotten(forgotten.id, forgotten.owner, forgotten.acknowledged)
	}
	s := &session{id: id, number: uint16(number), owner: owner, ownerID: protocol.OwnerOf(owner), first: next - 1, taken: next - 1, acknowledged: next - 1}
	t.byID[id], t.list[number] = s, s
	return s, nil
}

// Restart ends all peers with a reason. What has arrived and was not returned by Recv is dropped, and
// acknowledgements of what was returned are ignored. When a session comes back, Next says where it
// continues. Forgotten is called for each session with the last sequence that Recv has returned.
func (r *Receiver) Restart(why protocol.Reason) {
	for _, o := range r.all() {
		for _, p := range o.peers {
			o.finish(p, why)
		}
		o.drain()
	}
	for r.ready.Read(r.one[:]) == 1 {
		r.drop(r.one[0])
		r.roomy().back.Push(r.one[0])
	}
	for _, s := range r.sessions.byID {
		s.dropEarly()
		if s.again {
			continue
		}
		r.config.Forgotten(s.id, s.owner, s.taken)
		s.again = true // Acknowledge does nothing any more: the final message must not acknowledge more
	}
}

// drop forgets that a message was accepted.
func (r *Receiver) drop(f umem.Frame) {
	if s := r.sessions.at(r.region.Side(f).Queue); s != nil {
		s.taken--
	}
}

// participant is one of the senders whose messages a flow combines. The name of its certificate and
// the number in its hello identify it, so that it stays the same when it restarts with a new
// session.
type participant struct {
	owner   string
	number  uint32
	session *session // the newest
}

func (p *participant) String() string {
	switch {
	case p.owner == "":
		return fmt.Sprint("participant ", p.number)
	case p.number == 0:
		return fmt.Sprintf("%q", p.owner)
	}
	return fmt.Sprintf("participant %d of %q", p.number, p.owner)
}

// gone reports whether the receiver may forget the participant: it is not connected, and all its
// messages are acknowledged.
func (p *participant) gone() bool { return p.session.idle() }

// sender is the identity of a connecting peer, from its hello and its certificate.
type sender struct {
	session, next uint64 // of the hello
	participant   uint32 // of the hello
	several       bool   // the connection is one of several of the session
	path          uint32 // its number then
	owner         string // name of its certificate
	name          string // for logs and status
}

// identify returns the index of the participant that a sender is, and whether the sender begins a
// new session. It changes nothing. Without ReceiverConfig.Participants the index is -1.
func (r *Receiver) identify(w *sender) (index int, begins bool, err error) {
	if r.config.Participants == 0 {
		return -1, false, nil
	}
	known := r.sessions.byID[w.session]
	if known == nil && w.next > 1 {
		return 0, false, fmt.Errorf("%w: the flow does not know the session, of which messages are acknowledged, and combines the messages of its participants from the first on: start all of them again", protocol.BadSession)
	}
	asks := participant{owner: w.owner, number: w.participant}
	if w.owner == "" && w.participant == 0 {
		return 0, false, fmt.Errorf("%w: flow %q combines the messages of its participants: give each a number (unified-flow-test --participant) or its own certificate",
			protocol.NotPermitted, r.config.Flow)
	}
	for i := range r.participants {
		p := &r.participants[i]
		switch {
		case p.owner != asks.owner || p.number != asks.number:
			if known != nil && p.session == known {
				return 0, false, fmt.Errorf("%w: the session is that of %v", protocol.NotPermitted, p)
			}
			continue
		case p.session == known:
			return i, false, nil
		case known != nil:
			return 0, false, fmt.Errorf("%w: %v has begun a newer session", protocol.BadSession, p)
		case p.session.peer != nil:
			return 0, false, fmt.Errorf("%w: %v is connected with another session", protocol.Busy, p)
		}
		return i, true, nil
	}
	return r.vacancy()
}

// vacancy finds an index for a participant that is not known.
func (r *Receiver) vacancy() (index int, begins bool, err error) {
	if n := len(r.participants); n < r.config.Participants {
		return n, true, nil
	}
	for i := range r.participants {
		if r.participants[i].gone() {
			return i, true, nil
		}
	}
	return 0, false, fmt.Errorf("%w: all %d participants are known, and connected or owed acknowledgements: %v", protocol.Busy, len(r.participants), r.known())
}

// joins records that a sender is the participant with an index from now on, and has a new session.
func (r *Receiver) joins(index int, w *sender, s *session) {
	p := participant{owner: w.owner, number: w.participant, session: s}
	if index == len(r.participants) {
		r.participants = append(r.participants, p)
	} else {
		r.participants[index] = p
	}
	s.participant = index
	r.config.Joins(index)
}

// Participant returns the index of the participant that a message is from, by the number of its
// session: from 0 to ReceiverConfig.Participants - 1. ok is false if the participant has begun a
// newer session since: the message must be ignored. It belongs to the worker's thread.
func (r *Receiver) Participant(number uint16) (index int, ok bool) {
	s := r.sessions.at(number)
	if s == nil || s.participant >= len(r.participants) {
		return 0, false
	}
	return s.participant, r.participants[s.participant].session == s
}

// known returns the participants, for error texts.
func (r *Receiver) known() (all []*participant) {
	for i := range r.participants {
		all = append(all, &r.participants[i])
	}
	return all
}
