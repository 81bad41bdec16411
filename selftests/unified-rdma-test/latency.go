package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// latency is the client's side. It sends each message when the answer to the one before has arrived.
func (l *link) latency() (result, error) {
	times := newTicks(l.Count)
	var err error
	switch {
	case twoSided(l.op):
		err = l.pingMessages(times)
	case l.op == rdma.Write:
		err = l.bounceWrites(true, times)
	default:
		err = l.roundTrips(times)
	}
	if err != nil {
		return result{}, err
	}
	row, err := latencyOf(l.Size, l.twoWay(), times.at)
	if err != nil {
		return result{}, fmt.Errorf("-n %d: %w", l.Count, err)
	}
	return result{job: l.job, latency: &row}, nil
}

// twoWay reports whether the server sends messages too.
func (l *link) twoWay() bool { return twoSided(l.op) || l.op == rdma.Write }

// answerLatency is the server's side.
func (l *link) answerLatency() error {
	switch {
	case !l.twoWay():
		return nil
	case twoSided(l.op):
		return l.pongMessages()
	}
	return l.bounceWrites(false, nil)
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
func (l *link) pingMessages(t *ticks) error {
	l.compose()
	if err := errors.Join(l.makeRoom(), l.first()); err != nil {
		return err
	}
	t.now()
	for range l.Count - 1 {
		if err := l.reply(); err != nil {
			return err
		}
		t.now()
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
func (l *link) bounceWrites(begins bool, t *ticks) error {
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
		t.now()
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
func (l *link) roundTrips(t *ticks) error {
	l.compose()
	if err := l.first(); err != nil {
		return err
	}
	t.now()
	for range l.Count - 1 {
		if _, err := l.answerTo(l.sent); err != nil {
			return err
		}
		t.now()
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
	if n < 1 {
		return fmt.Errorf("post %v number %d: %w", l.op, l.sends[0].ID, err)
	}
	return nil
}

// answerTo waits for at least one completion of a queue and posts the prepared request.
func (l *link) answerTo(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	for tries := 0; ; tries++ {
		n, err := q.Spin(l.polled, spin)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			if err := l.good(l.polled[:n]); err != nil {
				return nil, err
			}
			if err := l.first(); err != nil { // before the bookkeeping, for which the peer would wait
				return nil, err
			}
			l.waiting = time.Time{}
			return l.polled[:n], l.yield()
		}
		if err := l.idle(tries); err != nil {
			return nil, err
		}
	}
}
