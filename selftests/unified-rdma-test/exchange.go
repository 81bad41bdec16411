package main

import (
	"context"
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// turn is how long one call exchanges messages: so long that what the Go scheduler has to do when it is over is nothing to the messages. It
// gives the thread's place away 10 ms into each, and is quiet from then on.
const turn = 250 * time.Millisecond

// exchange is one side of a test of latency, with a provider that does all rounds in one call: who begins posts first. Times is when
// each message was posted; nil has none.
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

// rounding is what is exchanged.
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

// last waits for what is outstanding after the last round: the peer's last message if we began, and our own.
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
