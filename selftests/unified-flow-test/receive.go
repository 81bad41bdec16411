package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// receiveAll takes messages until there are enough, or the program must end.
func receiveAll(ctx context.Context, k *client.Client, o options) (r result, err error) {
	s, err := k.Listen(ctx, client.SinkConfig{Listen: o.address, Flow: o.flow, Window: o.depth, Write: o.method == "write"})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return (&receiving{options: o, from: s, next: make(map[uint64]uint64), hist: latency.New()}).all(ctx)
}

// receiving has the state of received messages.
type receiving struct {
	options
	from *client.Sink
	next map[uint64]uint64 // the expected number of each session
	hist *latency.Histogram
}

// all verifies the messages. The times are from the time in the message, by the sender's clock,
// until the program has the message.
func (v *receiving) all(ctx context.Context) (r result, err error) {
	r = result{Did: "received and verified"}
	var begin time.Time
	last := begin
	for v.count == 0 || r.Messages < v.count {
		m, err := v.receive(ctx, r.Messages > 0)
		if errors.Is(err, errIdle) || v.count == 0 && errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return r, fmt.Errorf("after %d messages: %w", r.Messages, err)
		}
		if begin.IsZero() {
			begin = time.Now()
		}
		if err := v.verify(&m); err != nil {
			return r, err
		}
		v.hist.Record(uint64(max(1, time.Since(m.Stamp))))
		last = time.Now()
		r.Messages++
		r.Bytes += uint64(len(m.Payload))
	}
	r.Seconds, r.Latency, r.Sessions = last.Sub(begin).Seconds(), v.hist.Summary(), len(v.next)
	return r, nil
}

var errIdle = errors.New("nothing came any more")

// receive waits for a message. After the first one, it waits no longer than -idle.
func (v *receiving) receive(ctx context.Context, begun bool) (client.Message, error) {
	if v.idle > 0 && begun {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, v.idle, errIdle)
		defer cancel()
	}
	return v.from.Receive(ctx)
}

// verify checks that a message matches its number, and that its number is the next one.
func (v *receiving) verify(m *client.Message) error {
	want := v.next[m.Session] + 1
	if m.Sequence != want {
		return fmt.Errorf("message %d of session %x came, and %d was to come", m.Sequence, m.Session, want)
	}
	v.next[m.Session] = want
	if v.packets {
		return v.verifyPacket(m)
	}
	if at := harness.Differs(m.Payload, v.seed, m.Sequence); at >= 0 {
		return fmt.Errorf("message %d differs from byte %d on", m.Sequence, at)
	}
	return nil
}

// verifyPacket compares a packet with the one that was sent.
func (v *receiving) verifyPacket(m *client.Message) error {
	b, err := payload(m.Payload)
	if err == nil {
		_, err = checkDatagram(b, v.seed)
	}
	if err != nil {
		return fmt.Errorf("message %d: %w", m.Sequence, err)
	}
	return nil
}
