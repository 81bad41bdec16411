package order

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/rule"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
)

// session is what a flow whose orders rules make sends besides orders: a login, whose answer it checks, and heartbeats. It
// belongs to the worker's thread.
type session struct {
	login     []byte
	answer    *rule.Answer // nil: none is expected
	heartbeat []byte
	every     time.Duration // 0: there are no heartbeats

	said     bool      // the login has left
	answered bool      // and the exchange has answered it
	next     time.Time // when the login or the next heartbeat is due

	loggedIn atomic.Bool               // for the status
	beats    counter.Counter           // heartbeats that have left
	refused  [verdicts]counter.Counter // heartbeats and logins that have not left
}

// prepare makes the session of a flow.
func (s *session) prepare(o *config.Order) {
	if o.Login != nil {
		s.login = rule.Constant(o.Login.Send)
		if len(o.Login.Answer) > 0 {
			s.answer = rule.NewAnswer(o.Login.Answer)
		}
	}
	if o.Heartbeat != nil {
		s.heartbeat, s.every = rule.Constant(o.Heartbeat.Send), o.Heartbeat.Every
	}
}

// begin begins a session on a new connection.
func (s *session) begin(now time.Time) {
	s.said, s.answered = s.login == nil, s.answer == nil
	if s.next = now; s.said {
		s.next = now.Add(s.every)
	}
	if s.answer != nil {
		s.answer.Reset()
	}
	s.loggedIn.Store(s.open())
}

// open reports whether orders may leave.
func (s *session) open() bool { return s.said && s.answered }

// end ends the session.
func (s *session) end() { s.loggedIn.Store(false) }

// left says that something has left.
func (s *session) left(now time.Time) { s.next = now.Add(s.every) }

// sayAgain is how long a login that could not leave waits.
const sayAgain = 10 * time.Millisecond

// keepUp logs in, and sends heartbeats. With the kill switch on it does neither.
func (s *Sink) keepUp(now time.Time) {
	one := &s.rules.session
	if now.Before(one.next) || s.halt.Stopped() {
		return
	}
	switch {
	case !one.said:
		one.next = now.Add(sayAgain)
		one.said = s.say(one.login, now)
		one.loggedIn.Store(one.open())
	case one.every > 0 && one.open():
		one.next = now.Add(one.every)
		if s.say(one.heartbeat, now) {
			one.beats.Add(1)
		}
	}
}

// say sends bytes as an order, and reports whether they have left.
func (s *Sink) say(text []byte, now time.Time) bool {
	frame, b, why, v := s.begin(len(text), now)
	if v == permitted {
		s.orders.none()
		copy(b[tcpsend.Headroom:], text)
		v = s.finish(frame, b, why, time.Now())
	}
	if v != permitted {
		if v < verdicts { // else it is counted
			s.rules.session.refused[v].Add(1)
		}
		return false
	}
	s.rules.session.left(now)
	return true
}

// hear looks at what the exchange sends first.
func (s *session) hear(b []byte) error {
	if s.answered {
		return nil
	}
	switch s.answer.Add(b) {
	case rule.Matched:
		s.answered = true
		s.loggedIn.Store(s.open())
	case rule.Unmatched:
		return fmt.Errorf("%w: it begins % x", errLogin, s.answer.Bytes())
	}
	return nil
}

// errLogin says that the exchange has not answered a login as to.order.login.answer says.
var errLogin = errors.New("the exchange refuses the login")
