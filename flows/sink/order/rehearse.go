package order

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/rule"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/umem"
)

// rehearsal does now and then what an order needs, without sending anything, while a worker spins and nothing arrives.
// Code and data of the way to the interface, and the processor's branch predictions for it, are then ready for the next
// order. docs/background/benchmarks.md has what that saves. It belongs to the worker's thread.
type rehearsal struct {
	next   time.Time // when it is due
	renew  time.Time // when to keep another packet
	packet [1500]byte
	length int // of the packet of an order that has left; 0: there is none
}

const (
	rehearseTime = 20 * time.Microsecond // much longer than a rehearsal takes: a tick seldom comes in one
	renewTime    = time.Second
)

// keep keeps the packet, or the message, of an order that has left, as an example.
func (r *rehearsal) keep(packet []byte, now time.Time) {
	r.next = now.Add(rehearseTime)
	if now.Before(r.renew) || len(packet) > len(r.packet) {
		return
	}
	r.renew = now.Add(renewTime)
	r.length = copy(r.packet[:], packet)
}

// run rehearses if it is time to.
func (r *rehearsal) run(s *Sink, now time.Time) {
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(rehearseTime)
	if s.conn == nil || s.halt.Stopped() {
		return
	}
	if s.rules != nil && r.length > 0 {
		r.order(s, now)
	}
	_ = s.port.Rehearse() // Check reports an interface that is down or gone
}

// order makes an order of the example, up to the segment, in a frame of the flow that stays there.
func (r *rehearsal) order(s *Sink, now time.Time) {
	message, ok := s.rules.message(r.packet[:r.length])
	if !ok {
		return
	}
	number, o := s.rules.set.Find(message)
	var one [1]umem.Frame
	if o != rule.Matched || !s.own.Pop(one[:]) {
		return
	}
	b := s.region.At(one[0].Addr, tcpsend.Headroom+uint64(s.rules.set.Len(number)))
	payload := b[tcpsend.Headroom:]
	s.rules.set.Fill(number, payload, message)
	if s.limits.check(payload, int64(now.Sub(s.begun))) == permitted {
		s.limits.giveBack()
	}
	s.conn.Rehearse(b, now)
	s.own.Push(one[0])
}
