package stream

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// roll adds senders to a receiver with participants.
type roll struct {
	*testing.T
	r      *Receiver
	joined []int
}

func newRoll(t *testing.T, participants int) *roll {
	o := &roll{T: t, r: &Receiver{sessions: newSessions(1)}}
	o.r.config = ReceiverConfig{Flow: "sums", Participants: participants, Joins: func(i int) { o.joined = append(o.joined, i) }}
	o.r.config.setDefaults()
	return o
}

// comes adds a sender, as attach does.
func (o *roll) comes(w sender) (*session, error) {
	index, begins, err := o.r.identify(&w)
	if err != nil {
		return nil, err
	}
	s, err := o.r.sessionOf(w.session, w.owner, w.next)
	if err == nil && begins {
		o.r.joins(index, &w, s)
	}
	return s, err
}

func (o *roll) has(s *session, index int, current bool) {
	o.Helper()
	if i, ok := o.r.Participant(s.number); i != index || ok != current {
		o.Errorf("session %d is of participant %d, its newest: %v; want %d, %v", s.id, i, ok, index, current)
	}
}

// TestParticipants: the receiver identifies a participant by its certificate and number. The
// participant keeps its index when it begins a session.
func TestParticipants(t *testing.T) {
	o := newRoll(t, 2)
	refused := func(w sender, reason protocol.Reason, words string) {
		t.Helper()
		if _, err := o.comes(w); !errors.Is(err, reason) || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v, want %v that says %q", w, err, reason, words)
		}
	}
	refused(sender{session: 1, next: 1}, protocol.NotPermitted, "--participant")
	refused(sender{session: 1, next: 2, participant: 1}, protocol.BadSession, "start all of them again")
	a, err := o.comes(sender{session: 1, next: 1, participant: 1})
	testenv.Must(t, err)
	o.has(a, 0, true)
	a.peer = &peer{}
	refused(sender{session: 2, participant: 1}, protocol.Busy, "participant 1 is connected with another session")
	refused(sender{session: 1, participant: 2}, protocol.NotPermitted, "the session is that of participant 1")
	b, err := o.comes(sender{session: 3, owner: "bob", participant: 1})
	testenv.Must(t, err)
	o.has(b, 1, true)
	b.taken = 1 // and not acknowledged
	refused(sender{session: 4, participant: 3}, protocol.Busy, `[participant 1 participant 1 of "bob"]`)
	a.peer = nil
	again, err := o.comes(sender{session: 5, participant: 1})
	testenv.Must(t, err)
	o.has(again, 0, true)
	o.has(a, 0, false)
	refused(sender{session: 1, participant: 1}, protocol.BadSession, "a newer session")
	if s, err := o.comes(sender{session: 5, next: 9, participant: 1}); s != again || err != nil {
		t.Errorf("it comes back: %+v, %v", s, err)
	}
	other, err := o.comes(sender{session: 6, participant: 4}) // replaces an idle participant
	testenv.Must(t, err)
	o.has(other, 0, true)
	if !slices.Equal(o.joined, []int{0, 1, 0, 0}) {
		t.Errorf("sessions were begun by %v", o.joined)
	}
}
