package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/selftest"
)

// readAll reads blocks at random that make made, and verifies them.
func readAll(ctx context.Context, k *client.Client, o options) (r result, err error) {
	b, err := k.Blocks(ctx, client.BlocksConfig{Address: o.address, Flow: o.flow, Longest: int(o.size), Depth: o.depth})
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
	v := &reading{options: o, places: span / o.size, random: rand.New(rand.NewPCG(o.seed, 0)), asked: make(map[uint64][]time.Time), hist: latency.New()}
	begin := time.Now()
	err = b.Fetch(ctx, v.next, v.got)
	return result{Did: "read and verified", Messages: v.came, Bytes: v.came * o.size, Seconds: time.Since(begin).Seconds(), Latency: v.hist.Summary()}, err
}

// reading is requests on their way.
type reading struct {
	options
	places      uint64 // of requests in what is served
	random      *rand.Rand
	begun, came uint64
	asked       map[uint64][]time.Time // by offset: one may be asked for twice
	hist        *latency.Histogram
}

func (v *reading) next() (offset uint64, length int, ok bool) {
	if v.begun == v.count {
		return 0, 0, false
	}
	v.begun++
	offset = v.random.Uint64N(v.places) * v.size
	v.asked[offset] = append(v.asked[offset], time.Now())
	return offset, int(v.size), true
}

// got verifies the blocks of one request.
func (v *reading) got(offset uint64, bytes []byte) error {
	times := v.asked[offset]
	v.hist.Record(uint64(time.Since(times[0])))
	v.asked[offset] = times[1:]
	v.came++
	for at := uint64(0); at < uint64(len(bytes)); at += blockSize {
		if i := selftest.Differs(bytes[at:at+blockSize], v.seed, (offset+at)/blockSize); i >= 0 {
			return fmt.Errorf("the block at %d differs from byte %d on", offset+at, i)
		}
	}
	return nil
}
