package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// sendAll sends datagrams through the kernel, for flows that take packets.
func sendAll(ctx context.Context, _ *client.Client, o options) (r result, err error) {
	to, err := net.Dial("udp", o.address)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	datagram := make([]byte, o.size)
	begin := time.Now()
	for i := uint64(1); i <= o.count; i++ {
		if err := o.pace(ctx, begin, i); err != nil {
			return r, err
		}
		putDatagram(datagram, o.seed, i)
		if _, err := to.Write(datagram); err != nil {
			return r, fmt.Errorf("send datagram %d: %w", i, err)
		}
	}
	return result{Did: "sent", Messages: o.count, Bytes: o.count * o.size, Seconds: time.Since(begin).Seconds()}, nil
}

// numberLen is the length of a datagram's number, before its pattern.
const numberLen = 8

// putDatagram writes datagram n.
func putDatagram(b []byte, seed, n uint64) {
	binary.BigEndian.PutUint64(b, n)
	harness.Fill(b[numberLen:], seed, n)
}

// checkDatagram reads the number of a datagram, and compares every byte after it with the pattern.
func checkDatagram(b []byte, seed uint64) (n uint64, err error) {
	if len(b) < numberLen {
		return 0, fmt.Errorf("a datagram of %d bytes has no number", len(b))
	}
	n = binary.BigEndian.Uint64(b)
	if at := harness.Differs(b[numberLen:], seed, n); at >= 0 {
		return n, fmt.Errorf("datagram %d differs from byte %d on", n, at+numberLen)
	}
	return n, nil
}

// pace waits until it is time to send message i at the rate. It sleeps for a millisecond at least,
// and catches up afterwards.
func (o *options) pace(ctx context.Context, begin time.Time, i uint64) error {
	if o.rate == 0 {
		return ctx.Err()
	}
	early := time.Until(begin.Add(time.Duration(float64(i-1) / float64(o.rate) * float64(time.Second))))
	if early < time.Millisecond {
		return ctx.Err()
	}
	select {
	case <-time.After(early):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
