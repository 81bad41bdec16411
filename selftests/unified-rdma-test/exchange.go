package main

import (
	"context"
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// turn is how long one call exchanges messages. It is so long that the Go scheduler's work after
// the call does not affect the result. 10 ms into each call the scheduler takes the thread's P
// away. Then it is idle until the call returns.
const turn = 250 * time.Millisecond

// exchange is one side of a latency test with a provider that does all rounds in one call. The side
// that begins posts first. times receives when each message was posted; it may be nil.
func (l *link) exchange(e rdma.Exchanger, begins bool, times []uint64) error {
	x := l.rounding(begins, times)
	for x.Rounds > 0 {
		before := x.Rounds
		err := e.Exchange(x, turn)
		if l.open = x.Open; err != nil {
			return errors.Join(l.over(), l.failed(), err)
		}
		if x.Rounds < before {
			if l.waiting = (time.Time{}); l.ctx.Err() != nil {
				return context.Cause(l.ctx)
			}
			continue
		}
		if err := errors.Join(l.failed(), l.stillWaiting()); err != nil {
			return err
		}
		x.Open = l.open
	}
	return l.last(begins)
}

// rounding describes the exchange to the provider.
func (l *link) rounding(begins bool, times []uint64) *rdma.Exchange {
	l.compose()
	x := &rdma.Exchange{Request: l.sends[0], Element: l.element[0], Sent: l.sent, Ahead: ahead, Rounds: l.Count, Begun: begins, Posted: times}
	switch {
	case twoSided(l.op):
		x.Came = l.came
		for slot := range together {
			l.receive(slot, slot%l.slots)
		}
		x.Again, x.Into = l.recvs[:together], l.sges[:together]
	case l.op == rdma.Write:
		out := l.bytes(l.out, 0)
		x.Last = &out[len(out)-1]
		x.Word, x.Shift = wordAtEnd(l.bytes(l.in, 0))
		if *x.Last = 0; !begins {
			x.Number = 1
		}
	default:
		x.Begun = true
	}
	return x
}

// last waits for what is outstanding after the last round: our own requests and, if we began, the
// peer's last message.
func (l *link) last(begins bool) error {
	switch {
	case !begins:
	case twoSided(l.op):
		if _, err := l.await(l.came); err != nil {
			return errors.Join(l.failed(), err)
		}
	case l.op == rdma.Write:
		if err := l.awaitByte(byte(l.Count)); err != nil {
			return err
		}
	}
	return l.settle(0)
}
