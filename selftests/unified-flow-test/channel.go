package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

func defineAttached(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.socket, "socket", attached.DefaultSocket, "`path` of the socket where programs attach")
	fs.StringVar(&o.as, "as", "", "`name` of the program")
	fs.Uint64Var(&o.size, "size", 64, "`bytes` of a message, 16 at least")
	fs.Uint64Var(&o.count, "count", 10000, "messages")
	fs.Uint64Var(&o.rate, "rate", 0, "messages per second; 0: as fast as it goes")
	fs.BoolVar(&o.spin, "spin", false, "never sleep")
}

func defineChannel(fs *flag.FlagSet, o *options) {
	defineAttached(fs, o)
	fs.StringVar(&o.writes, "writes", "", "`channel` to write. With -reads: write one message, read the answer, and so on; the latency is half of the time for both")
	fs.StringVar(&o.reads, "reads", "", "`channel` to read, and verify. The latency is from writing a message to having read it")
	fs.BoolVar(&o.echo, "echo", false, "with both: write each message that is read")
}

func defineSubmit(fs *flag.FlagSet, o *options) {
	defineAttached(fs, o)
	fs.StringVar(&o.flow, "flow", "", "the flow's `name`")
	fs.IntVar(&o.depth, "depth", 64, "messages that are submitted and not done")
}

func defineTake(fs *flag.FlagSet, o *options) {
	defineAttached(fs, o)
	fs.StringVar(&o.flow, "flow", "", "the flow's `name`")
	fs.DurationVar(&o.idle, "idle", 0, "end when nothing has come for so long, since the first message; 0: do not")
}

// stampLen is what a message of a channel begins with: its number, and when it was written.
const stampLen = 16

// probe is the number of messages that are not measured.
const probe = math.MaxUint64

// stamp writes a message.
func (o *options) stamp(b []byte, number uint64) []byte {
	b = b[:o.size]
	binary.NativeEndian.PutUint64(b, number)
	binary.NativeEndian.PutUint64(b[8:], uint64(time.Now().UnixNano()))
	harness.Fill(b[stampLen:], o.seed, number)
	return b
}

// verify checks a message, and returns when it was written.
func (o *options) verify(b []byte) (written int64, err error) {
	if len(b) < stampLen {
		return 0, fmt.Errorf("a message has %d bytes", len(b))
	}
	number := binary.NativeEndian.Uint64(b)
	if at := harness.Differs(b[stampLen:], o.seed, number); at >= 0 {
		return 0, fmt.Errorf("message %d differs from byte %d on", number, at+stampLen)
	}
	return int64(binary.NativeEndian.Uint64(b[8:])), nil
}

// untilDue waits until a message is due.
func (o *options) untilDue(begun time.Time, number uint64) {
	if o.rate == 0 {
		return
	}
	due := begun.Add(time.Duration(number * uint64(time.Second) / o.rate))
	for left := time.Until(due); left > 0; left = time.Until(due) {
		if left > 100*time.Microsecond && !o.spin {
			time.Sleep(left - 50*time.Microsecond)
		}
	}
}

// channel writes or reads channels.
func channel(ctx context.Context, k *attached.Client, o options) (r result, err error) {
	var w *attached.ChannelWriter
	var from *attached.ChannelReader
	defer func() {
		if w != nil {
			err = errors.Join(err, w.Close())
		}
		if from != nil {
			err = errors.Join(err, from.Close())
		}
	}()
	write := func() (err error) {
		if o.writes != "" {
			w, err = k.WriteChannel(o.writes)
		}
		return err
	}
	read := func() (err error) {
		if o.reads != "" {
			from, err = o.follow(ctx, k)
		}
		return err
	}
	open := []func() error{write, read}
	if o.echo { // once the other side can read what this one writes, this one reads already
		open = []func() error{read, write}
	}
	for _, one := range open {
		if err := one(); err != nil {
			return r, err
		}
	}
	r.Did = "wrote"
	if from != nil {
		r.Did = "read and verified"
	}
	times, begun := latency.New(), time.Now()
	switch {
	case o.echo:
		err = o.echoAll(ctx, w, from, &r)
	case w != nil && from != nil:
		err = o.pingAll(ctx, w, from, &r, times)
	case w != nil:
		err = o.writeAll(ctx, w, &r)
	default:
		err = o.followAll(ctx, from, &r, times)
	}
	r.Seconds, r.Latency = time.Since(begun).Seconds(), times.Summary()
	if from != nil {
		r.Lost = from.Lost()
	}
	return r, err
}

// follow opens a channel to read as soon as its writer is there.
func (o *options) follow(ctx context.Context, k *attached.Client) (*attached.ChannelReader, error) {
	for {
		from, err := k.ReadChannel(o.reads)
		if err == nil || ctx.Err() != nil {
			return from, err
		}
		time.Sleep(time.Millisecond)
	}
}

func (o *options) writeAll(ctx context.Context, w *attached.ChannelWriter, r *result) error {
	b, begun := make([]byte, o.size), time.Now()
	for n := range o.count {
		o.untilDue(begun, n)
		if _, err := w.WriteWait(ctx, o.stamp(b, n)); err != nil {
			return err
		}
		r.Messages, r.Bytes = r.Messages+1, r.Bytes+o.size
	}
	return nil
}

// next reads a message.
func (o *options) next(ctx context.Context, from *attached.ChannelReader, buffer []byte) ([]byte, error) {
	for turn := 1; ; turn++ {
		n, _, ok, err := from.Read(buffer)
		switch {
		case ok:
			return buffer[:n], nil
		case err != nil:
			return nil, err
		case o.spin:
			if turn%1024 == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		default:
			if err := from.Wait(ctx, time.Second); err != nil {
				return nil, err
			}
		}
	}
}

func (o *options) followAll(ctx context.Context, from *attached.ChannelReader, r *result, times *latency.Histogram) error {
	buffer := make([]byte, from.Longest())
	for r.Messages+from.Lost() < o.count {
		b, err := o.next(ctx, from, buffer)
		if err != nil {
			return err
		}
		now := time.Now().UnixNano()
		written, err := o.verify(b)
		if err != nil {
			return err
		}
		times.Record(uint64(max(0, now-written)))
		r.Messages, r.Bytes = r.Messages+1, r.Bytes+uint64(len(b))
	}
	return nil
}

func (o *options) pingAll(ctx context.Context, w *attached.ChannelWriter, from *attached.ChannelReader, r *result, times *latency.Histogram) error {
	for w.Readers() == 0 { // the other side has yet to come: it would not get the first message
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		time.Sleep(time.Millisecond)
	}
	b, buffer := make([]byte, o.size), make([]byte, from.Longest())
	if err := o.awaitEcho(ctx, w, from, b, buffer); err != nil {
		return err
	}
	begun := time.Now()
	for n := range o.count {
		o.untilDue(begun, n)
		b = o.stamp(b, n)
		sent := time.Now()
		if _, err := w.WriteWait(ctx, b); err != nil {
			return err
		}
		got, err := o.nextMeasured(ctx, from, buffer)
		if err != nil {
			return err
		}
		times.Record(uint64(time.Since(sent) / 2))
		if _, err := o.verify(got); err != nil {
			return err
		}
		r.Messages, r.Bytes = r.Messages+1, r.Bytes+o.size
	}
	return nil
}

// awaitEcho writes probes until one is answered. The reader of a channel to another machine is the daemon there, which
// is there before the program that reads the channel from it.
func (o *options) awaitEcho(ctx context.Context, w *attached.ChannelWriter, from *attached.ChannelReader, b, buffer []byte) error {
	for {
		if _, err := w.WriteWait(ctx, o.stamp(b, probe)); err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err := o.next(soon, from, buffer)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// nextMeasured reads a message, and passes over answers to probes.
func (o *options) nextMeasured(ctx context.Context, from *attached.ChannelReader, buffer []byte) ([]byte, error) {
	for {
		b, err := o.next(ctx, from, buffer)
		if err != nil || !isProbe(b) {
			return b, err
		}
	}
}

func isProbe(b []byte) bool {
	return len(b) >= stampLen && binary.NativeEndian.Uint64(b) == probe
}

func (o *options) echoAll(ctx context.Context, w *attached.ChannelWriter, from *attached.ChannelReader, r *result) error {
	buffer := make([]byte, from.Longest())
	for r.Messages < o.count {
		b, err := o.next(ctx, from, buffer)
		if err == nil {
			_, err = w.WriteWait(ctx, b)
		}
		if err != nil {
			return err
		}
		if !isProbe(b) {
			r.Messages, r.Bytes = r.Messages+1, r.Bytes+uint64(len(b))
		}
	}
	return nil
}
