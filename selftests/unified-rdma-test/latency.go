package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/measure"
)

// latency is the client's side: message after message, each when the answer to the one before has
// come.
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

// measured does the client's side, and has when each message was posted, in nanoseconds.
func (l *link) measured() ([]uint64, error) {
	if e, ok := l.qp.(rdma.Exchanger); ok {
		times := make([]uint64, l.Count)
		return times, l.exchange(e, l.clientBegins(), times)
	}
	ticks := measure.NewTicks(l.Count)
	err := l.inTurn(ticks)
	return ticks.Nanoseconds(), err
}

// clientBegins: in a test of WRITE of perftest's the server begins to write.
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

// answerLatency is the server's.
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

// ahead is how many messages of a latency test may be sent whose completions were not taken.
const ahead = 16

// makeRoom is for one request more, which is not waited for: what the peer answers is sooner there than what its device
// acknowledges. Completions are taken when there must be room for more: a look at a queue that is empty would have a device in
// software acknowledge the peer's message in front of ours.
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

// failed takes completions that are there, and is the first one's error.
func (l *link) failed() error {
	if l.open == 0 {
		return nil
	}
	cs, err := l.look()
	l.open -= len(cs)
	return err
}

// pingMessages sends a message and waits for the peer's, again and again. What t has no place for is not timed: nil
// has none.
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

// pongMessages is the other side.
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

// together is how many receives are posted at once.
const together = 8

// take counts messages that came and posts their receives again, several at a time. When a message of ours fails the
// receives are flushed.
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

// bounceWrites writes to and fro: the last byte of each is the number of the message, which may change when the peer has
// answered. One side begins; the other writes when it has seen the byte. What t has no place for is not timed: nil has none.
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

// awaitByte waits until the device has written the last byte of the slot, with replyTimeout again for each: completions may
// all be taken in here, and then nothing else says that the peer is there. A device that works as the program looks at it does so meanwhile.
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

// roundTrips asks again as soon as the answer is there.
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

// compose makes the request that is posted again and again.
func (l *link) compose() {
	l.sends[0], l.element[0] = l.request(0, 0)
	l.sends[0].Flags |= rdma.Signaled
}

// first posts the prepared request.
func (l *link) first() error {
	n, err := l.qp.PostSend(l.sends[:1], l.element[:])
	return l.went(n, err)
}

// went is the error of a request that was not posted.
func (l *link) went(n int, err error) error {
	if n < 1 {
		return fmt.Errorf("post %v number %d: %w", l.op, l.sends[0].ID, err)
	}
	return nil
}

// answerTo waits for at least one completion of a queue, as await does, and posts what was composed at that very moment: time
// spent here would let processors go to sleep that have to do with the answer.
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
