package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// stage is the stage of a load. Its clients read it on their thread.
type stage int32

const (
	gathering stage = iota // not all clients are connected
	warming
	counting
	ending // clients send nothing more
)

// load has clients of one flow that always have messages in flight.
type load struct {
	options
	stage atomic.Int32
	left  atomic.Int64 // clients that are not done
	some  atomic.Bool  // a message was counted

	begin, end time.Time // of the counting period

	// The clients' thread uses these, and others do after all clients are done.
	counted uint64
	last    uint64 // position of the last acknowledged message
	hist    *latency.Histogram
}

// loaded is one of the clients.
type loaded struct {
	*load
	sent, done uint64
	since      []time.Time // of each message in flight
	due        time.Time   // when the next message may be sent, with a rate
	heard      time.Time   // the last acknowledgement
	ended      bool
}

// loadAll makes every client send for a while.
func loadAll(ctx context.Context, k *client.Client, o options) (r result, err error) {
	l := &load{options: o, hist: latency.New()}
	l.left.Store(int64(o.clients))
	for n := range o.clients {
		c := o.to()
		c.Message, c.Participant, c.Depth, c.Feed = int(o.size), o.participant(n), o.depth, &loaded{load: l, since: make([]time.Time, o.depth)}
		a, err := k.Append(ctx, c)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, a.Close()) }()
	}
	if err := l.run(ctx, os.Stderr); err != nil {
		return r, err
	}
	return result{Did: "appended", Messages: l.counted, Bytes: l.counted * o.size, Seconds: l.end.Sub(l.begin).Seconds(), Latency: l.hist.Summary(), Position: l.last}, nil
}

// run runs the stages, and prints which numbers count.
func (l *load) run(ctx context.Context, said io.Writer) error {
	for _, s := range []struct {
		stage
		time.Duration
		word string
	}{{warming, l.warm, "measuring"}, {counting, l.span, "measured"}} {
		l.begin = l.end
		l.stage.Store(int32(s.stage))
		if err := pause(ctx, s.Duration); err != nil {
			return err
		}
		if err := l.await(ctx, func() bool { return s.stage != counting || l.some.Load() }); err != nil {
			return err
		}
		l.end = time.Now()
		fmt.Fprintln(said, s.word)
	}
	l.stage.Store(int32(ending))
	return l.await(ctx, func() bool { return l.left.Load() == 0 })
}

// await checks every millisecond.
func (l *load) await(ctx context.Context, ok func() bool) error {
	for !ok() {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Next returns the next message. Only its number differs from the last.
func (c *loaded) Next(message []byte) (length int, ok bool) {
	switch stage(c.stage.Load()) {
	case gathering:
		return 0, false
	case ending:
		c.rest()
		return 0, false
	}
	now := time.Now()
	if !c.mayFeed(now) {
		return 0, false
	}
	binary.LittleEndian.PutUint64(message, c.sent)
	c.since[c.sent%uint64(c.depth)] = now
	c.sent++
	return int(c.size), true
}

// mostLate is for how long messages may be due that are then sent together. After a longer time without
// acknowledgements the rate begins anew.
const mostLate = 5 * time.Millisecond

// mayFeed keeps the rate.
func (c *loaded) mayFeed(now time.Time) bool {
	switch {
	case c.rate == 0:
		return true
	case now.Before(c.due):
		return false
	case now.Sub(c.due) > mostLate:
		c.due = now
	}
	c.due = c.due.Add(time.Second / time.Duration(c.rate))
	return true
}

// Acknowledged counts acknowledged messages during the counting period.
func (c *loaded) Acknowledged(r client.Receipt) {
	now := time.Now()
	if wait := now.Sub(c.heard); c.gap > 0 && wait > c.gap && !c.heard.IsZero() {
		fmt.Fprintln(os.Stderr, "gap", c.heard.UnixNano(), wait.Nanoseconds())
	}
	c.heard = now
	c.last = max(c.last, r.Position)
	counts := stage(c.stage.Load()) == counting
	for ; c.done < r.Number; c.done++ {
		if counts {
			c.count(now.Sub(c.since[c.done%uint64(c.depth)]))
		}
	}
}

func (l *load) count(took time.Duration) {
	if l.counted == 0 {
		l.some.Store(true)
	}
	l.counted++
	l.hist.Record(uint64(took))
}

// rest records that a client has nothing in flight.
func (c *loaded) rest() {
	if !c.ended && c.done == c.sent {
		c.ended = true
		c.left.Add(-1)
	}
}
