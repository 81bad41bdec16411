package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// appendAll sends all messages and waits until they are acknowledged.
func appendAll(ctx context.Context, k *client.Client, o options) (r result, err error) {
	c := o.to()
	c.Message, c.Participant, c.Depth, c.Method = o.longest(), o.participant(0), o.depth, stream.Method(o.method)
	a, err := k.Append(ctx, c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	if o.gaps > 0 {
		var watching sync.WaitGroup
		ctx, stop := context.WithCancel(ctx)
		watching.Go(func() { watchGaps(ctx, a, o, os.Stderr) })
		defer watching.Wait()
		defer stop()
	}
	to := &appending{options: o, to: a, sent: make([]time.Time, o.depth), hist: latency.New()}
	if o.history != "" {
		return to.recorded(ctx, o.history)
	}
	return to.all(ctx)
}

// longest returns the bytes of the longest message.
func (o *options) longest() int {
	if o.keys > 0 {
		return len(o.updateOf(nil, make([]byte, o.size), o.keys-1)) // the longest key
	}
	return int(o.size)
}

// appending has messages on their way to a flow.
type appending struct {
	options
	to   *client.Appender
	sent []time.Time // by number
	hist *latency.Histogram
	done client.Receipt
}

// all sends everything at the requested rate, and measures the time of each message from Send to
// its acknowledgement.
func (a *appending) all(ctx context.Context) (r result, err error) {
	message, value := make([]byte, a.longest()), make([]byte, a.size)
	begin := time.Now()
	for i := uint64(1); i <= a.count; i++ {
		if err := a.options.pace(ctx, begin, i); err != nil {
			return r, err
		}
		if i > uint64(a.depth) {
			if err := a.await(ctx, i-uint64(a.depth)); err != nil {
				return r, err
			}
		}
		if a.keys > 0 {
			message = a.updateOf(message, value, i)
		} else {
			harness.Fill(message, a.seed, i)
		}
		a.sent[i%uint64(a.depth)] = time.Now()
		if _, err := a.to.Send(ctx, message); err != nil {
			return r, err
		}
	}
	if err := a.await(ctx, a.count); err != nil {
		return r, err
	}
	return a.result(begin), nil
}

// result returns what was done, when all messages are acknowledged.
func (a *appending) result(begin time.Time) result {
	s := a.to.Stats()
	return result{Did: "appended", Messages: a.count, Bytes: a.count * a.size, Seconds: time.Since(begin).Seconds(), Latency: a.hist.Summary(),
		Position: a.done.Position, Resent: s.Resent, Connections: s.Connections, Durability: s.Durability.String(), Method: string(s.Method), Gap: s.Silence}
}

// await waits until a message is acknowledged, and records the times of all messages that were
// acknowledged since the last call.
func (a *appending) await(ctx context.Context, number uint64) error {
	if a.done.Number >= number {
		return nil
	}
	receipt, err := a.to.Wait(ctx, number)
	if err != nil {
		return err
	}
	now := time.Now()
	for n := a.done.Number + 1; n <= receipt.Number; n++ {
		a.hist.Record(uint64(now.Sub(a.sent[n%uint64(a.depth)])))
	}
	a.done = receipt
	return nil
}

// watchGaps prints each time of at least o.gaps between two acknowledgements, when it ends.
func watchGaps(ctx context.Context, a *client.Appender, o options, to io.Writer) {
	last := time.Now()
	for done := uint64(0); done < o.count; {
		r, err := a.Wait(ctx, done+1)
		if err != nil {
			return // the sender says why
		}
		now := time.Now()
		if gap := now.Sub(last); gap >= o.gaps {
			fmt.Fprintf(to, "no acknowledgement for %.1f ms, until message %d\n", milliseconds(gap), r.Number)
		}
		done, last = r.Number, now
	}
}
