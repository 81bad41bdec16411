package order

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/rule"
	"github.com/unifiedd/unifiedd/flows/stage"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/umem"
)

// strategy makes orders of packets, or of the messages of a feed, by rules. It belongs to the worker's thread.
type strategy struct {
	set     *rule.Set
	packets bool // batches have packets; false: they have messages
	noUDP   counter.Counter
	session session
}

func newStrategy(f *config.Flow) *strategy {
	o := f.To.Order
	r := &strategy{set: rule.New(o.Rules, o.Counter), packets: f.Feed() == nil}
	r.session.prepare(o)
	return r
}

// writeMessages takes packets or messages, and sends the orders that rules make of them. It never blocks: an order that
// cannot leave now would leave too late.
func (s *Sink) writeMessages(b *pipeline.Batch, now time.Time) bool {
	done := 0
	for {
		n, _ := umem.PacketLen(b.Frames[done:b.Len])
		if n == 0 {
			break
		}
		s.consider(b.Frames[done], now)
		done += n
	}
	s.record(b.Frames[:done])
	s.free.Push(b.Frames[:done]...)
	b.Drop(done)
	return true
}

// message returns the message in the bytes of a packet, or that they are.
func (r *strategy) message(b []byte) (m []byte, ok bool) {
	if !r.packets {
		return b, true
	}
	d, why := stage.UDP(b)
	return d.Payload, why == stage.Changed
}

// consider sends the order that a rule makes of a message, if one does. The frame is the first one of a packet, or that of
// a message.
func (s *Sink) consider(f umem.Frame, now time.Time) {
	message, ok := s.rules.message(s.region.Bytes(f))
	if !ok {
		s.rules.noUDP.Add(1)
		return
	}
	number, o := s.rules.set.Match(message)
	if o != rule.Matched {
		return
	}
	switch v := s.fire(number, message, s.region.Side(f), now); v {
	case permitted:
		s.taken++
		s.rules.set.Left(number)
		s.rules.session.left(now)
		if s.rehearsal != nil {
			s.rehearsal.keep(s.region.Bytes(f), now)
		}
	case counted:
	default:
		s.count.refused[v].Add(1)
	}
}

// fire sends the order of a rule, or says why it does not leave. side says when the message's packet arrived.
func (s *Sink) fire(number int, message []byte, side *umem.Side, now time.Time) verdict {
	if s.conn != nil && !s.rules.session.open() {
		return unconnected
	}
	frame, b, why, v := s.begin(s.rules.set.Len(number), now)
	if v != permitted {
		return v
	}
	at := time.Now()
	s.orders.answers(s.taken+1, side, uint64(at.UnixNano()))
	s.rules.set.Fill(number, b[tcpsend.Headroom:], message)
	return s.finish(frame, b, why, at)
}

// begin takes a frame for an order of some bytes, which may leave in the way that why says. b is the frame's memory.
func (s *Sink) begin(size int, now time.Time) (frame umem.Frame, b []byte, why tcpsend.Reason, v verdict) {
	switch {
	case s.halt.Stopped():
		s.halt.Hold()
		return frame, nil, why, stopped
	case s.conn == nil:
		return frame, nil, why, unconnected
	}
	why = s.conn.Guard(size)
	switch {
	case why == tcpsend.Closed:
		s.next = now // to look at it
		return frame, nil, why, unconnected
	case why.Waits():
		s.count.waits[why].Add(1)
		return frame, nil, why, late
	}
	var one [1]umem.Frame
	if s.own.Len() == 0 {
		s.reapPort()
	}
	if !s.own.Pop(one[:]) {
		s.count.noFrame.Add(1)
		return frame, nil, why, late
	}
	return one[0], s.region.At(one[0].Addr, tcpsend.Headroom+uint64(size)), why, permitted
}

// finish sends what begin has prepared, if the limits permit it. at is the time, read after begin.
func (s *Sink) finish(frame umem.Frame, b []byte, why tcpsend.Reason, at time.Time) verdict {
	payload := b[tcpsend.Headroom:]
	s.count.copied.Add(uint64(len(payload)))
	if v := s.limits.check(payload, int64(at.Sub(s.begun))); v != permitted {
		s.own.Push(frame)
		return v
	}
	switch outcome, decided := s.leave(frame, b, payload, why, at); {
	case !decided:
		return late
	case outcome != wire.None: // leave has counted it
		return counted
	}
	return permitted
}

// observe adds what rules have done to a status.
func (r *strategy) observe(to *status.Orders) {
	t := r.set.Stats()
	refused := map[string]uint64{}
	for v := permitted + 1; v < verdicts; v++ {
		refused[verdictNames[v]] = r.session.refused[v].Load()
	}
	to.Rules = &status.OrderRules{
		Matched: t.Messages[rule.Matched], Unmatched: t.Messages[rule.Unmatched], Short: t.Messages[rule.Short], NoUDP: r.noUDP.Load(),
		LoggedIn: r.session.loggedIn.Load(), Heartbeats: r.session.beats.Load(), Refused: refused,
	}
	for _, one := range t.Rules {
		to.Rules.Rules = append(to.Rules.Rules, status.OrderRule{Name: one.Name, Matched: one.Matched, Left: one.Left})
	}
}
