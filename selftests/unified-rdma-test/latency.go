package main

import (
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
		err = l.pingWrites(ticks)
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
	return result{job: l.job, latency: &row}, l.tell("end")
}

// answerLatency is the server's.
func (l *link) answerLatency() error {
	var err error
	switch {
	case twoSided(l.op):
		err = l.pongMessages()
	case l.op == rdma.Write:
		err = l.pongWrites()
	}
	if err != nil {
		return err
	}
	return l.hear("end")
}

// one posts the request that is sent again and again, and waits until it is complete.
func (l *link) one(r rdma.SendRequest, s rdma.SGE) error {
	if err := l.send(r, s); err != nil {
		return err
	}
	_, err := l.await(l.sent)
	return err
}

func (l *link) pingMessages(t *measure.Ticks) error {
	r, s := l.request(0, 0)
	r.Flags |= rdma.Signaled
	for range l.Count {
		t.Now()
		if err := l.one(r, s); err != nil {
			return err
		}
		if err := l.takeOne(); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) pongMessages() error {
	r, s := l.request(0, 0)
	r.Flags |= rdma.Signaled
	for range l.Count {
		if err := l.takeOne(); err != nil {
			return err
		}
		if err := l.one(r, s); err != nil {
			return err
		}
	}
	return nil
}

// takeOne waits for a message and posts its receive again. The peer sends one at a time.
func (l *link) takeOne() error {
	cs, err := l.await(l.came)
	if err != nil {
		return err
	}
	return l.post(0, len(cs))
}

// pingWrites writes and waits until the peer has written back: the last byte of each is the
// number of the message.
func (l *link) pingWrites(t *measure.Ticks) error {
	r, s, last := l.writing()
	for i := range l.Count {
		*last = byte(i + 1)
		t.Now()
		if err := l.one(r, s); err != nil {
			return err
		}
		if err := l.awaitByte(byte(i + 1)); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) pongWrites() error {
	r, s, last := l.writing()
	for i := range l.Count {
		if err := l.awaitByte(byte(i + 1)); err != nil {
			return err
		}
		*last = byte(i + 1)
		if err := l.one(r, s); err != nil {
			return err
		}
	}
	return nil
}

// writing is the request that is sent again and again, and the last byte that it sends.
func (l *link) writing() (rdma.SendRequest, rdma.SGE, *byte) {
	r, s := l.request(0, 0)
	r.Flags |= rdma.Signaled
	return r, s, &l.bytes(l.out, 0)[l.Size-1]
}

// awaitByte waits until the device has written the last byte of the slot.
func (l *link) awaitByte(want byte) error {
	word, shift := lastWord(l.bytes(l.in, 0))
	for tries := 1; byte(atomic.LoadUint32(word)>>shift) != want; tries++ {
		if tries%(1<<16) == 0 {
			if err := l.stillWaiting(); err != nil {
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
		if err := l.one(r, s); err != nil {
			return err
		}
	}
	return nil
}
