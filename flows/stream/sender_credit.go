package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// maxCredits is the maximum number of unused credits; it is a power of two.
const maxCredits = 4096

// credits are the credits that a receiver has granted on one link, one for each message.
type credits struct {
	items      [maxCredits]protocol.Credit
	head, tail uint32
	size       uint32 // the least room of a credit in bytes
	next       uint64 // sequence of the next credit
}

// newCredits makes an empty set for a receiver that sent this hello.
func newCredits(h *protocol.Hello) *credits { return &credits{size: h.Message, next: h.Next} }

// add adds the credits of a message. It ignores credits that it already has.
func (c *credits) add(message []byte, g *protocol.Grant) protocol.Reason {
	all, sequence := protocol.CreditsOf(message, g.Credits), g.First
	for ; len(all) > 0; all = all[protocol.CreditLen:] {
		one, why := protocol.ParseCredit(all)
		if why == protocol.None {
			why = c.one(one, sequence)
		}
		if why != protocol.None {
			return why
		}
		sequence += uint64(one.Count)
	}
	return protocol.None
}

// one adds one credit, which is for the messages from sequence on.
func (c *credits) one(one protocol.Credit, sequence uint64) protocol.Reason {
	end := sequence + uint64(one.Count)
	switch {
	case end < sequence || end > mostAhead:
		return protocol.BadSequence
	case end <= c.next:
		return protocol.None
	case sequence != c.next:
		return protocol.BadSequence
	case one.Size < c.size:
		return protocol.BadLength
	case c.tail-c.head == maxCredits:
		return protocol.BeyondCredit
	}
	c.items[c.tail%maxCredits] = one
	c.tail++
	c.next = end
	return protocol.None
}

// remoteAddress turns a request into the WRITE of the next message. There must be a credit for it.
func (c *credits) remoteAddress(r *rdma.SendRequest) {
	one := &c.items[c.head%maxCredits]
	r.Op, r.RemoteAddr, r.RKey = rdma.WriteImmediate, one.Addr, one.RKey
	binary.BigEndian.PutUint32(r.Immediate[:], one.Slot)
	one.Addr += uint64(one.Size)
	one.Slot++
	if one.Count--; one.Count == 0 {
		c.head++
	}
}

// errForgot means that the receiver has lost messages that it had acknowledged: it reconnected with
// a lower sequence. The sender no longer has them either, so it begins a new session.
var errForgot = errors.New("the receiver does not have what it acknowledged before")

// errOther means that a member of a group lacks acknowledged messages. It may have led before, and not
// know yet that it does not any more.
var errOther = errors.New("the member does not have what another one acknowledged")

// attach takes over a link, and continues with the sequence that the receiver expects next. It
// refuses a link on which the session cannot continue.
func (s *Sender) attach(l *link, h protocol.Hello) error {
	if s.gap {
		return errAbandoned
	}
	if err := s.follows(h.Next); err != nil {
		s.gap = !errors.Is(err, errOther)
		return err
	}
	select {
	case <-s.broken: // of the last link
	default:
	}
	s.link, s.stats.stale = l, true
	s.use(l.path)
	s.sent = s.begun + h.Next - 1
	s.done, s.limit = s.sent, s.sent+uint64(h.Window)
	s.stats.count.resent += s.out.last - s.sent
	s.beginSpread(l)
	return nil
}

// follows checks the next sequence that a receiver states.
func (s *Sender) follows(next uint64) error {
	there, have := s.out.last-s.begun, s.confirm-s.begun
	switch {
	case next > there+1:
		return fmt.Errorf("%w: it expects message %d of a session that has %d", protocolError(protocol.BadSequence), next, there)
	case next <= have && s.to.other(time.Now()):
		return fmt.Errorf("%w: it acknowledged message %d and expects number %d; another member may lead", errOther, have, next)
	case next <= have:
		s.stats.count.forgotten += have + 1 - next
		return fmt.Errorf("%w: it acknowledged message %d and expects number %d; a new session begins", errForgot, have, next)
	}
	return nil
}

// detach gives up a link, which the caller closes. It returns the cause of the link's failure. It
// first processes the messages that have arrived, because the receiver may have just sent the
// cause.
func (s *Sender) detach() (cause error) {
	_, _ = s.drain() // an error is reported later
	_, _ = s.take()
	s.heards = 0 // the link's receives end with it
	cause, s.ending, s.link = s.link.cause, s.link, nil
	return cause
}

// released is called when nothing is posted.
func (s *Sender) released() {
	s.ending = nil
	for n := 1; n > 0; { // remove the old queue pair's completions: another one may get its number
		var err error
		if n, err = s.on.queue.Poll(s.polled[:]); err != nil {
			break // Poll reports the error
		}
	}
	s.done = s.out.last
	s.release()
	if s.giveUp {
		s.abandon()
	}
	if s.gap {
		s.startSession()
	}
	s.stats.publish(s)
}

// startSession begins a session with the first message that is not acknowledged.
func (s *Sender) startSession() {
	s.begun = s.out.first - 1
	s.confirm, s.session, s.gap = s.begun, newSession(), false
	s.stats.count.sessions++
}
