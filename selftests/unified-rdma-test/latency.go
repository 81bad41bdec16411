package main

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/measure"
)

// latency is the client's side: message after message, each when the answer to the one before has
// come.
func (l *link) latency() (result, error) {
	ticks := measure.NewTicks(l.Count)
	var err error
	way := measure.OneWay
	switch {
	case twoSided(l.op):
		err = l.pingMessages(ticks)
	case l.op == rdma.Write:
		// In a latency test of perftest's the server begins to write.
		err = l.bounceWrites(l.options.peer == "", ticks)
	default:
		way = measure.RoundTrip
		err = l.roundTrips(ticks)
	}
	if err != nil {
		return result{}, err
	}
	row, err := measure.NewLatency(l.Size, way, ticks.Nanoseconds())
	if err != nil {
		return result{}, fmt.Errorf("-n %d: %w", l.Count, err)
	}
	return result{job: l.job, latency: &row}, nil
}

// answerLatency is the server's.
func (l *link) answerLatency() error {
	switch {
	case twoSided(l.op):
		return l.pongMessages()
	case l.op == rdma.Write:
		return l.bounceWrites(l.options.peer != "", nil)
	}
	return nil
}

// ahead is how many messages of a latency test may be sent whose completions were not taken.
const ahead = 16

// again posts the request that is sent again and again. It is not waited for: what the peer answers is sooner there than
// what its device acknowledges. Completions are taken when there must be room for more: a look at a queue that is empty would have a device in
// software acknowledge the peer's message in front of ours.
func (l *link) again(r rdma.SendRequest, s rdma.SGE) error {
	if err := l.makeRoom(); err != nil {
		return err
	}
	return l.send(r, s)
}

// makeRoom is for one request more.
func (l *link) makeRoom() error {
	if l.open == ahead {
		if err := l.settle(ahead - 1); err != nil {
			return err
		}
	}
	l.open++
	return nil
}

// settle waits until at most so many requests are not complete.
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
	cs, err := l.look()
	l.open -= len(cs)
	return err
}

// pingMessages sends a message and waits for the peer's, again and again. What t has no place for is not timed: nil
// has none.
func (l *link) pingMessages(t *measure.Ticks) error {
	r, s := l.request(0, 0)
	r.Flags |= rdma.Signaled
	for range l.Count {
		if t != nil {
			t.Now()
		}
		if err := l.exchange(r, s); err != nil {
			return err
		}
	}
	return l.settle(0)
}

// pongMessages is the other side.
func (l *link) pongMessages() error {
	r, s := l.request(0, 0)
	r.Flags |= rdma.Signaled
	err := l.take(l.await(l.came))
	for i := 1; i < l.Count && err == nil; i++ {
		err = l.exchange(r, s)
	}
	if err == nil {
		err = l.again(r, s)
	}
	if err != nil {
		return err
	}
	return l.settle(0)
}

// exchange sends a message and waits for the peer's next.
func (l *link) exchange(r rdma.SendRequest, s rdma.SGE) error {
	if err := l.makeRoom(); err != nil {
		return err
	}
	return l.take(l.call(r, s, l.came))
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
	r, s, last := l.writing()
	for i := range l.Count {
		number := byte(i + 1)
		if !begins {
			if err := l.awaitByte(number); err != nil {
				return err
			}
		}
		*last = number
		if t != nil {
			t.Now()
		}
		if err := l.again(r, s); err != nil {
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

// writing is the request that is sent again and again, and the last byte that it sends.
func (l *link) writing() (rdma.SendRequest, rdma.SGE, *byte) {
	r, s := l.request(0, 0)
	r.Flags |= rdma.Signaled
	return r, s, &l.bytes(l.out, 0)[l.Size-1]
}

// awaitByte waits until the device has written the last byte of the slot. A device in software does its work meanwhile.
func (l *link) awaitByte(want byte) error {
	word, shift := lastWord(l.bytes(l.in, 0))
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

func (l *link) roundTrips(t *measure.Ticks) error {
	r, s := l.request(0, 0)
	r.Flags |= rdma.Signaled
	for range l.Count {
		t.Now()
		if _, err := l.call(r, s, l.sent); err != nil {
			return err
		}
	}
	return nil
}
