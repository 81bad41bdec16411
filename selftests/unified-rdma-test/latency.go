package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/measure"
)

// latency is the client's side. It sends each message when the answer to the one before has arrived.
func (l *link) latency() (result, error) {
	way := measure.OneWay
	if !l.twoWay() {
		way = measure.RoundTrip
	}
	times, err := l.measured()
	if err != nil {
		return result{}, err
	}
	row, err := measure.NewLatency(l.Size, way, times)
	if err != nil {
		return result{}, fmt.Errorf("-n %d: %w", l.Count, err)
	}
	return result{job: l.job, latency: &row}, nil
}

// twoWay reports whether the server sends messages too.
func (l *link) twoWay() bool { return twoSided(l.op) || l.op == rdma.Write }

// measured runs the client's side. It returns when each message was posted, in nanoseconds.
func (l *link) measured() ([]uint64, error) {
	if e, ok := l.qp.(rdma.Exchanger); ok {
		times := make([]uint64, l.Count)
		return times, l.exchange(e, l.clientBegins(), times)
	}
	ticks := measure.NewTicks(l.Count)
	err := l.inTurn(ticks)
	return ticks.Nanoseconds(), err
}

// clientBegins reports whether the client posts first. In perftest's WRITE test the server does.
func (l *link) clientBegins() bool { return l.op != rdma.Write || l.options.peer == "" }

func (l *link) inTurn(t *measure.Ticks) error {
	switch {
	case twoSided(l.op):
		return l.pingMessages(t)
	case l.op == rdma.Write:
		return l.bounceWrites(l.clientBegins(), t)
	}
	return l.roundTrips(t)
}

// answerLatency is the server's side.
func (l *link) answerLatency() error {
	e, ok := l.qp.(rdma.Exchanger)
	switch {
	case !l.twoWay():
		return nil
	case ok:
		return l.exchange(e, !l.clientBegins(), nil)
	case twoSided(l.op):
		return l.pongMessages()
	}
	return l.bounceWrites(!l.clientBegins(), nil)
}

// ahead is the number of messages that a latency test may send before it polls for their completions.
const ahead = 16

// makeRoom makes room in the send queue for one more request. It polls for completions only if the
// queue is full. The peer's answer arrives before its device's acknowledgement. And a poll of an
// empty queue would make a device in software acknowledge the peer's message before it sends ours.
func (l *link) makeRoom() error {
	if l.open == ahead {
		if err := l.settle(ahead - 1); err != nil {
			return err
		}
	}
	l.open++
	return nil
}

// settle waits until at most most requests are in flight.
func (l *link) settle(most int) error {
	for l.open > most {
		cs, err := l.await(l.sent)
		if err != nil {
			return err
		}
		l.open -= len(cs)
	}
	return nil
}

// failed polls for completions without waiting, and returns the error of the first one.
func (l *link) failed() error {
	if l.open == 0 {
		return nil
	}
	cs, err := l.look()
	l.open -= len(cs)
	return err
}

// pingMessages sends a message and waits for the peer's, again and again. t records times as far as
// it has room; it may be nil.
func (l *link) pingMessages(t *measure.Ticks) error {
	l.compose()
	if err := errors.Join(l.makeRoom(), l.first()); err != nil {
		return err
	}
	t.Now()
	for range l.Count - 1 {
		if err := l.reply(); err != nil {
			return err
		}
		t.Now()
	}
	if err := l.take(l.await(l.came)); err != nil {
		return err
	}
	return l.settle(0)
}

// pongMessages is the other side of pingMessages.
func (l *link) pongMessages() error {
	l.compose()
	for range l.Count {
		if err := l.reply(); err != nil {
			return err
		}
	}
	return l.settle(0)
}

// reply waits for the peer's message and answers at once.
func (l *link) reply() error {
	if err := l.makeRoom(); err != nil {
		return err
	}
	return l.take(l.answerTo(l.came))
}

// together is the number of receives that are posted at once.
const together = 8

// take counts received messages and reposts their receives, several at a time. When one of our
// messages fails, the device flushes the receives.
func (l *link) take(cs []rdma.WorkCompletion, err error) error {
	if err != nil {
		return errors.Join(l.failed(), err)
	}
	if l.taken += len(cs); l.taken < together {
		return nil
	}
	n := l.taken
	l.taken = 0
	return l.post(0, n)
}

// bounceWrites alternates WRITEs with the peer. The last byte of each message is its number. That
// byte may change once the peer has answered. One side begins; the other writes when it sees the
// byte. t records times as far as it has room; it may be nil.
func (l *link) bounceWrites(begins bool, t *measure.Ticks) error {
	l.compose()
	last := &l.bytes(l.out, 0)[l.Size-1]
	for i := range l.Count {
		number := byte(i + 1)
		if !begins {
			if err := l.awaitByte(number); err != nil {
				return err
			}
		}
		*last = number
		if err := l.first(); err != nil {
			return err
		}
		t.Now()
		if err := errors.Join(l.makeRoom(), l.yield()); err != nil {
			return err
		}
		if begins {
			if err := l.awaitByte(number); err != nil {
				return err
			}
		}
	}
	return l.settle(0)
}

// awaitByte waits until the device has written the last byte of the slot. Each call waits up to
// replyTimeout: this function may take all completions, and then nothing else shows that the peer
// is alive. It also makes progress on a device that works only while the program polls.
func (l *link) awaitByte(want byte) error {
	l.waiting = time.Time{}
	word, shift := wordAtEnd(l.bytes(l.in, 0))
	for tries := 1; byte(atomic.LoadUint32(word)>>shift) != want; tries++ {
		if l.progress != nil {
			l.progress.Progress()
		}
		if tries%(1<<16) == 0 {
			if err := errors.Join(l.failed(), l.stillWaiting()); err != nil {
				return err
			}
		}
	}
	return nil
}

// roundTrips posts the next request as soon as the answer to the last one has arrived.
func (l *link) roundTrips(t *measure.Ticks) error {
	l.compose()
	if err := l.first(); err != nil {
		return err
	}
	t.Now()
	for range l.Count - 1 {
		if _, err := l.answerTo(l.sent); err != nil {
			return err
		}
		t.Now()
	}
	_, err := l.await(l.sent)
	return err
}

// compose prepares the request that is posted again and again.
func (l *link) compose() {
	l.sends[0], l.element[0] = l.request(0, 0)
	l.sends[0].Flags |= rdma.Signaled
}

// first posts the prepared request.
func (l *link) first() error {
	n, err := l.qp.PostSend(l.sends[:1], l.element[:])
	return l.went(n, err)
}

// went returns an error if the request was not posted.
func (l *link) went(n int, err error) error {
	if n < 1 {
		return fmt.Errorf("post %v number %d: %w", l.op, l.sends[0].ID, err)
	}
	return nil
}

// answerTo waits for at least one completion of a queue, as await does, and posts the composed
// request in the same call. A delay in between would let processors sleep that the answer needs.
func (l *link) answerTo(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	for tries := 0; ; tries++ {
		n, posted, err := rdma.SpinPost(l.qp, q, l.polled, spin, l.sends[:1], l.element[:])
		if n == 0 && err != nil {
			return nil, err
		}
		if n > 0 {
			cs, failed := l.answered(n)
			if failed == nil {
				failed = l.went(posted, err)
			}
			return cs, failed
		}
		if err := l.idle(tries); err != nil {
			return nil, err
		}
	}
}
