package stream

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// participant is one of those whose messages a flow combines. It is known by its certificate's name and the number in its hello, so
// that it stays the same when it starts again with a new session.
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

// gone reports whether the participant may be forgotten: it is away, and all that it sent is acknowledged.
func (p *participant) gone() bool { return p.session.idle() }

// sender is who asks to be a peer.
type sender struct {
	session, next uint64 // of the hello
	participant   uint32 // of the hello
	owner         string // name of its certificate
	name          string // for people
}

// identify finds the participant that a sender is, without changing anything: its index, and whether it begins a new session. Without
// ReceiverConfig.Participants it is -1.
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
		return 0, false, fmt.Errorf("%w: flow %q combines the messages of its participants: give each a number (unified-flow-test --participant) or a certificate of its own",
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

// vacancy finds a place for a participant that is not known.
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

// joins notes that a sender is the participant of an index from now on, with a new session.
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

// Participant is the index of the participant that a message came from, by the number of its session: from 0 to less than
// ReceiverConfig.Participants. The message is to be left out where ok is false: the participant has begun a newer session since.
// It is for the worker's thread.
func (r *Receiver) Participant(number uint16) (index int, ok bool) {
	s := r.sessions.at(number)
	if s == nil || s.participant >= len(r.participants) {
		return 0, false
	}
	return s.participant, r.participants[s.participant].session == s
}

// known are the participants, for people.
func (r *Receiver) known() (all []*participant) {
	for i := range r.participants {
		all = append(all, &r.participants[i])
	}
	return all
}
