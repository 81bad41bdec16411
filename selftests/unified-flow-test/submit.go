package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// busyTime is how long a program that has just ended may still be attached.
const busyTime = time.Second

// attach attaches as the program, also right behind another run of it, which the daemon may not have missed yet.
func (o *options) attach() (*attached.Client, error) {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		k, err := attached.Attach(attached.Config{Socket: o.socket, Name: o.as})
		if refused, is := errors.AsType[*attached.RefusedError](err); !is || refused.Reason != "busy" || time.Since(begun) > busyTime {
			return k, err
		}
	}
}

// asProgram makes the work of a command of an attached program.
func asProgram(work func(context.Context, *attached.Client, options) (result, error)) func(context.Context, *client.Client, options) (result, error) {
	return func(ctx context.Context, _ *client.Client, o options) (r result, err error) {
		k, err := o.attach()
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, k.Close()) }()
		return work(ctx, k, o)
	}
}

// submit sends messages of an attached program, until all are done.
func submit(ctx context.Context, k *attached.Client, o options) (result, error) {
	return o.submitAll(ctx, k, o.flow, "submitted", func(b []byte, n uint64) int {
		harness.Fill(b[:min(o.size, uint64(len(b)))], o.seed, n+1)
		return int(o.size)
	})
}

// submitAll submits messages to a flow, until all are done. put makes message n, and returns its length.
func (o *options) submitAll(ctx context.Context, k *attached.Client, flow, did string, put func(b []byte, n uint64) int) (r result, err error) {
	r.Did = did
	s, err := k.Send(flow, 0)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	times, begun := latency.New(), time.Now()
	sent, receipts := make([]time.Time, o.depth), make([]attached.Receipt, 64)
	for n := uint64(0); r.Messages < o.count; {
		for n < o.count && n-r.Messages < uint64(o.depth) {
			f, err := s.Claim()
			if err != nil {
				break
			}
			o.untilDue(begun, n)
			sent[n%uint64(o.depth)] = time.Now()
			length := put(f.Data, n)
			if length > len(f.Data) {
				return r, fmt.Errorf("-size %d: a message of the flow has at most %d bytes", o.size, len(f.Data))
			}
			if _, err := s.Commit(f, length); err != nil {
				return r, err
			}
			n++
		}
		got, err := s.Poll(receipts)
		now := time.Now()
		for _, one := range receipts[:got] {
			if one.Err != nil {
				return r, one.Err
			}
			times.Record(uint64(now.Sub(sent[r.Messages%uint64(o.depth)])))
			r.Messages, r.Bytes, r.Position = r.Messages+1, r.Bytes+o.size, one.Position
		}
		if got == 0 && (!o.spin || err != nil) {
			if err := s.Wait(ctx, time.Second); err != nil {
				return r, err
			}
		}
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
	}
	r.Seconds, r.Latency = time.Since(begun).Seconds(), times.Summary()
	return r, nil
}

// take takes the packets or messages of a flow to an attached program.
func take(ctx context.Context, k *attached.Client, o options) (r result, err error) {
	r = result{Did: "took"}
	from, err := k.Receive(o.flow, 0)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	times, begun, last := latency.New(), time.Now(), time.Time{}
	got := make([]attached.Message, 64)
	position := uint64(0)
	for r.Messages < o.count {
		n, err := from.Poll(got[:min(uint64(len(got)), o.count-r.Messages)])
		now := time.Now()
		for _, m := range got[:n] {
			times.Record(uint64(max(0, now.UnixNano()-int64(m.Stamp))))
			r.Messages, r.Bytes = r.Messages+1, r.Bytes+uint64(len(m.Data))
			if position > 0 {
				r.Lost += m.Position - position - 1
			}
			position, last = m.Position, now
		}
		from.Release(got[:n])
		switch {
		case n > 0:
		case o.idle > 0 && !last.IsZero() && now.Sub(last) > o.idle:
			o.count = r.Messages
		case !o.spin || err != nil:
			if err := from.Wait(ctx, max(o.idle, 100*time.Millisecond)); err != nil {
				return r, err
			}
		case ctx.Err() != nil:
			return r, context.Cause(ctx)
		}
	}
	r.Seconds, r.Latency = time.Since(begun).Seconds(), times.Summary()
	return r, nil
}
