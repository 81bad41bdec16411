package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/latency"
)

func defineState(fs *flag.FlagSet, o *options) {
	defineAttached(fs, o)
	fs.StringVar(&o.writes, "writes", "", "`flow` to: {state: ...}: update objects, or keys, in turn, until all updates are done. The latency is until one is done")
	fs.StringVar(&o.reads, "reads", "", "`state` to read, at random, and verify. The latency is that of one read")
	defineContents(fs, o)
	fs.IntVar(&o.depth, "depth", 64, "updates that are submitted and not done")
}

func defineGet(fs *flag.FlagSet, o *options) {
	fs.StringVar(&o.address, "from", "", "`host:port` where the daemon listens for readers of the state")
	fs.StringVar(&o.reads, "reads", "", "`state` to read, at random, and verify. The latency is that of one read")
	fs.StringVar(&o.peer, "peer", "", "instead of -from and -reads, `NAME/STATE`: names of the daemon and of its state, which are followed. It takes -etcd")
	defineEtcd(fs, o)
	fs.Uint64Var(&o.count, "count", 10000, "reads")
	fs.Uint64Var(&o.rate, "rate", 0, "reads per second; 0: as fast as it goes")
	defineContents(fs, o)
}

func defineContents(fs *flag.FlagSet, o *options) {
	fs.Uint64Var(&o.objects, "objects", 16, "how many objects are updated or read, from number 0 on")
	fs.Uint64Var(&o.keys, "keys", 0, "the state has keys: how many are updated or read; 0: it has objects")
}

// stateReader reads a state, locally or over RDMA.
type stateReader interface {
	Get(object uint64, dst []byte) (n int, version uint64, err error)
	Lookup(key, dst []byte) (n int, err error)
	Position() (position, run uint64, err error)
	Conflicts() uint64
	Room() int
	Close() error
}

// stateKey makes the key of a number.
func stateKey(b []byte, number uint64) []byte { return fmt.Appendf(b[:0], "key%d", number) }

// state updates or reads a state as an attached program.
func state(ctx context.Context, k *attached.Client, o options) (result, error) {
	switch {
	case (o.writes == "") == (o.reads == ""):
		return result{}, errors.New("say either -writes or -reads")
	case o.writes != "":
		payload := make([]byte, o.size)
		return o.submitAll(ctx, k, o.writes, "updated", func(b []byte, n uint64) int { return len(o.updateOf(b, payload, n)) })
	}
	s, err := k.State(o.reads)
	if err != nil {
		return result{}, err
	}
	return o.lookAll(ctx, s)
}

// get reads a state over RDMA.
func get(ctx context.Context, k *client.Client, o options) (result, error) {
	s, err := k.State(ctx, client.StateConfig{Address: o.address, State: o.reads, Peer: o.peer})
	if err != nil {
		return result{}, err
	}
	r, err := o.lookAll(ctx, s)
	r.Followed = s.Connections() - 1
	return r, err
}

// updateOf makes the update with a number.
func (o *options) updateOf(b, payload []byte, number uint64) []byte {
	if o.keys > 0 {
		var key [24]byte
		return attached.AppendPutKey(b[:0], stateKey(key[:], number%o.keys), o.stamp(payload, number))
	}
	return attached.AppendPutObject(b[:0], number%o.objects, o.stamp(payload, number))
}

// lookAll reads until as many reads as asked for have found something. What is not there yet it waits for, and for a
// state that is followed.
func (o *options) lookAll(ctx context.Context, s stateReader) (r result, err error) {
	r.Did = "read and verified"
	defer func() { err = errors.Join(err, s.Close()) }()
	times, begun, buffer := latency.New(), time.Now(), make([]byte, s.Room())
	random, key := rand.New(rand.NewPCG(o.seed, 1)), make([]byte, 24)
	for r.Messages < o.count {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		o.untilDue(begun, r.Messages)
		n, before := 0, time.Now()
		if o.keys > 0 {
			n, err = s.Lookup(stateKey(key, random.Uint64N(o.keys)), buffer)
		} else {
			n, _, err = s.Get(random.Uint64N(o.objects), buffer)
		}
		took := time.Since(before)
		switch {
		case errors.Is(err, attached.ErrNotFound), o.away(err):
			time.Sleep(time.Millisecond)
			continue
		case errors.Is(err, attached.ErrAgain):
			r.GivenUp++
			continue
		case err != nil:
			return r, err
		}
		if _, err := o.verify(buffer[:n]); err != nil {
			return r, err
		}
		times.Record(uint64(took))
		r.Messages, r.Bytes = r.Messages+1, r.Bytes+uint64(n)
	}
	r.Seconds, r.Latency, r.Conflicts = time.Since(begun).Seconds(), times.Summary(), s.Conflicts()
	for {
		if r.Position, _, err = s.Position(); !o.away(err) || ctx.Err() != nil {
			return r, err
		}
		time.Sleep(time.Millisecond)
	}
}

// away reports whether an error says that the state has no connection, and that there will be another one.
func (o *options) away(err error) bool { return o.peer != "" && errors.Is(err, client.ErrDisconnected) }
