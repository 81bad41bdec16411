package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// readAll reads random blocks that make wrote, and verifies them.
func readAll(ctx context.Context, k *client.Client, o options) (r result, err error) {
	b, err := k.Blocks(ctx, client.BlocksConfig{Address: o.address, Flow: o.flow, Peer: o.peer, Longest: int(o.size), Depth: o.depth})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	span := b.Size()
	if o.within > 0 {
		span = min(span, o.within)
	}
	if o.size > uint64(b.Longest()) || o.size > span {
		return r, fmt.Errorf("-size %d: one request takes at most %d bytes, and they are read from %d", o.size, b.Longest(), span)
	}
	v := &reading{options: o, places: span / o.size, random: rand.New(rand.NewPCG(o.seed, 0)), asked: make(map[uint64]time.Time, o.depth), hist: latency.New(),
		begin: time.Now()}
	err = b.Fetch(ctx, v.next, v.got)
	return result{Did: v.did(), Messages: v.came, Bytes: v.came * o.size, Seconds: time.Since(v.begin).Seconds(), Latency: v.hist.Summary()}, err
}

// reading has requests in flight.
type reading struct {
	options
	places      uint64 // of requests in the served data
	random      *rand.Rand
	begin       time.Time
	begun, came uint64
	asked       map[uint64]time.Time // by offset
	hist        *latency.Histogram
}

func (v *reading) did() string {
	if v.sample > 1 {
		return fmt.Sprintf("read and verified one in %d of", v.sample)
	}
	return "read and verified"
}

// next draws the next request. A block that is requested twice at the same time is timed once.
func (v *reading) next() (offset uint64, length int, ok bool) {
	now := time.Now()
	if v.over(now) {
		return 0, 0, false
	}
	v.begun++
	offset = v.random.Uint64N(v.places) * v.size
	if _, twice := v.asked[offset]; !twice {
		v.asked[offset] = now
	}
	return offset, int(v.size), true
}

// over reports whether enough was requested: after the time of -for, or else the number of -count.
func (v *reading) over(now time.Time) bool {
	if v.span > 0 {
		return now.Sub(v.begin) >= v.span
	}
	return v.begun == v.count
}

// got takes the blocks of one request, and verifies a sample of them.
func (v *reading) got(offset uint64, bytes []byte) error {
	if at, ok := v.asked[offset]; ok {
		v.hist.Record(uint64(time.Since(at)))
		delete(v.asked, offset)
	}
	v.came++
	if v.came%v.sample != 0 {
		return nil
	}
	for at := uint64(0); at < uint64(len(bytes)); at += blockSize {
		if i := harness.Differs(bytes[at:at+blockSize], v.seed, (offset+at)/blockSize); i >= 0 {
			return fmt.Errorf("the block at %d differs from byte %d on", offset+at, i)
		}
	}
	return nil
}
