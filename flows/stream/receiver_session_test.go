package stream

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSessionsBound: a new session replaces the session that was quiet for longest. The receiver
// keeps sessions that are connected or have messages without an acknowledgement.
func TestSessionsBound(t *testing.T) {
	r := &Receiver{sessions: newSessions(1)}
	asked := 0
	r.config.Next = func(uint64, string) (uint64, error) { asked++; return 5, nil }
	r.config.Forgotten = func(uint64, string, uint64) {}
	for id := range uint64(sessionsMost) {
		s, err := r.sessionOf(id+1, "", 0)
		if err != nil || int(s.number) != int(id) || s.taken != 4 || s.acknowledged != 4 {
			t.Fatalf("session %d: %+v, %v", id, s, err)
		}
		s.seen = 1000 - int64(id) // the last is the oldest
	}
	r.sessions.at(sessionsMost-1).taken++
	r.sessions.at(sessionsMost - 2).peer = &peer{}
	s, err := r.sessionOf(5000, "", 0)
	if err != nil || s.number != sessionsMost-3 || r.sessions.byID[sessionsMost-2] != nil || len(r.sessions.byID) != sessionsMost {
		t.Errorf("the new one is %+v, %v", s, err)
	}
	if known, err := r.sessionOf(5000, "", 0); known != s || err != nil || asked != sessionsMost+1 {
		t.Errorf("it is then %+v, %v, and Next was called %d times", known, err, asked)
	}
	for _, s := range r.sessions.list {
		s.taken = 9
	}
	if _, err := r.sessionOf(6000, "", 0); !errors.Is(err, protocol.Busy) {
		t.Errorf("with all owed something: %v", err)
	}
	if r.sessions.at(sessionsMost) != nil {
		t.Error("there is a session beyond the last")
	}
}

// TestSessionOwner: only the owner of a session can continue or replace it.
func TestSessionOwner(t *testing.T) {
	r := &Receiver{sessions: newSessions(1)}
	r.config.setDefaults()
	s, err := r.sessionOf(1, "alice", 0)
	testenv.Must(t, err)
	s.peer = &peer{}
	if _, err := r.sessionOf(1, "bob", 0); !errors.Is(err, protocol.NotPermitted) {
		t.Errorf("another gets it: %v", err)
	}
	if _, err := r.replace(&sender{session: 1, owner: "bob"}); !errors.Is(err, protocol.NotPermitted) {
		t.Errorf("another ends it: %v", err)
	}
}

// TestSessionZero: if the flow's Next returns sequence 0, the receiver reports an error of the
// flow.
func TestSessionZero(t *testing.T) {
	r := &Receiver{sessions: newSessions(1)}
	r.config.Next = func(uint64, string) (uint64, error) { return 0, nil }
	if _, err := r.sessionOf(1, "", 0); err == nil {
		t.Error("sequence 0 is expected")
	}
}

// TestSessionResumes: with Resume, a session that the receiver does not know continues where its
// sender can.
func TestSessionResumes(t *testing.T) {
	for _, c := range []struct {
		resume           bool
		next, from, want uint64
	}{{true, 1, 101, 100}, {true, 1, 0, 0}, {true, 51, 101, 50}, {false, 1, 101, 0}} {
		r := &Receiver{sessions: newSessions(1)}
		r.config.Resume, r.config.Next = c.resume, func(uint64, string) (uint64, error) { return c.next, nil }
		if s, err := r.sessionOf(1, "", c.from); err != nil || s.taken != c.want || s.acknowledged != c.want {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
}

// TestSessionsOfNobody: sessions that sent nothing do not replace a session that sent messages. The
// receiver keeps sessions that sent a short time ago.
func TestSessionsOfNobody(t *testing.T) {
	r := &Receiver{sessions: newSessions(16)}
	r.config.Next = func(uint64, string) (uint64, error) { return 101, nil }
	var forgotten []uint64
	r.config.Forgotten = func(id uint64, owner string, acknowledged uint64) { forgotten = append(forgotten, id, acknowledged) }
	s, err := r.sessionOf(7, "alice", 0)
	testenv.Must(t, err)
	s.taken, s.acknowledged, s.seen = 200, 200, 1
	for id := range uint64(2 * sessionsMost) {
		o, err := r.sessionOf(1000+id, "mallory", 0)
		testenv.Must(t, err)
		o.seen = 2 + int64(id)
	}
	if again, err := r.sessionOf(7, "alice", 0); again != s || err != nil {
		t.Errorf("the session is %+v, %v", again, err)
	}
	for _, s := range r.sessions.list {
		s.taken, s.acknowledged, s.seen = 200, 200, time.Now().UnixNano()
	}
	if _, err := r.sessionOf(1, "", 0); !errors.Is(err, protocol.Busy) || r.sessions.byID[7] != s {
		t.Errorf("where all have sent: %v", err)
	}
	s.seen = time.Now().Add(-2 * sessionTime).UnixNano()
	forgotten = nil
	if _, err := r.sessionOf(1, "", 0); err != nil || r.sessions.byID[7] != nil || !slices.Equal(forgotten, []uint64{7, 200}) {
		t.Errorf("where one has sent long ago: %v; forgotten: %v", err, forgotten)
	}
}
