package stream

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// session is what a receiver knows of a sender's session, whether it is connected or not.
type session struct {
	id           uint64
	number       uint16 // in the table; Side.Queue of its messages
	owner        string // name of the certificate that began it; empty without
	ownerID      uint64 // its protocol.OwnerOf
	participant  int    // index, where there are participants
	first        uint64 // what taken was when this run came to know it
	taken        uint64 // the highest sequence that came; all up to it did
	acknowledged uint64
	position     uint64 // of the acknowledged one
	peer         *peer  // nil: not connected
	seen         int64  // when the last message came, or it was connected: nanoseconds since 1970
	count        sessionCounters
}

// idle reports whether the session may be forgotten: what it sent is acknowledged, and it is not connected.
func (s *session) idle() bool { return s.peer == nil && s.acknowledged == s.taken }

// used reports whether a message came in this run. One that was not used is found again by Next as it was.
func (s *session) used() bool { return s.taken != s.first }

// sessions are those of this run of the flow, by id and by number. There is a bound to them. The one that was quiet for longest is forgotten
// for a new one: of those that sent nothing, else of those that sent nothing for sessionTime. A sender whose session is forgotten may send messages twice,
// so a full table refuses newcomers instead.
type sessions struct {
	byID map[uint64]*session
	list []*session // by number
	most int
}

// sessionsMost is how many sessions are remembered at least, connected or not.
const sessionsMost = 1024

// sessionTime is how long a session is remembered after its last message, at least.
const sessionTime = time.Hour

func newSessions(peers int) sessions {
	return sessions{byID: make(map[uint64]*session), most: max(sessionsMost, 2*peers)}
}

// at is the session of a number, nil where there is none.
func (t *sessions) at(number uint16) *session {
	if int(number) >= len(t.list) {
		return nil
	}
	return t.list[number]
}

// place is a number for a new session. Where the table is full it is that of one to be forgotten.
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

// Session says who began a session that is known, and how far it has come. It is for the worker's thread.
func (r *Receiver) Session(id uint64) (owner string, taken uint64, known bool) {
	if s := r.sessions.byID[id]; s != nil {
		return s.owner, s.taken, true
	}
	return "", 0, false
}

// OwnerID is [protocol.OwnerOf] of who began the session of a message, by its number. It is for the worker's thread.
func (r *Receiver) OwnerID(number uint16) uint64 {
	if s := r.sessions.at(number); s != nil {
		return s.ownerID
	}
	return 0
}

// sessionOf is the session of an id, made where it is not known; from is where its sender can go on.
func (r *Receiver) sessionOf(id uint64, owner string, from uint64) (*session, error) {
	t := &r.sessions
	if s := t.byID[id]; s != nil {
		if s.owner != owner {
			return nil, ErrOwner
		}
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
	r.mu.Lock()
	defer r.mu.Unlock()
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
