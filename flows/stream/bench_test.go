package stream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// BenchmarkMessages measures a sender and a receiver together. The receiver does not read payloads,
// and acknowledges each message as soon as it arrives.
func BenchmarkMessages(b *testing.B) {
	for _, size := range []int{64, 1984} {
		for _, check := range []bool{false, true} {
			b.Run(fmt.Sprintf("size=%d/check=%v", size, check), func(b *testing.B) { benchMessages(b, size, check) })
		}
	}
}

func benchMessages(b *testing.B, size int, check bool) {
	g := newRig(b)
	c := receiverConfig()
	c.Message, c.Window, c.Check = 2048, 256, check
	k := g.far.newSink(c, 1024)
	k.on(func() { k.rounds = []func() bool{k.quickRound} })
	from := g.near.newLoop("source")
	var s *Sender
	from.on(func() {
		var err error
		s, err = OpenSender(SenderConfig{Name: "bench", Endpoint: g.near.at, Worker: from.hands, Address: k.address, Flow: "log", Message: 2048, Depth: 256})
		testenv.Check(b, err)
	})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go from.ns.Do(b, func() { ran <- s.Run(ctx, from.do) })
	frames := from.take(1)
	b.Cleanup(func() {
		cancel()
		from.must(<-ran)
		from.on(func() {
			from.rounds = nil
			testenv.Check(b, s.Close())
			from.hands.Give(frames)
		})
	})
	message := []umem.Frame{{Addr: frames[0].Addr, Len: uint32(size)}}
	sum := protocol.Checksum(from.region.Bytes(message[0]))
	testenv.Wait(b, 10*time.Second, "a connection", func() bool { return s.Stats().State == SenderConnected })
	b.SetBytes(int64(size))
	b.ResetTimer()
	done := make(chan struct{})
	sent, acked := 0, 0
	var results [64]Result
	from.each(func() bool {
		for range 64 {
			if sent == b.N || !s.Send(message, uint32(size), sum, 0, 0) {
				break
			}
			sent++
		}
		testenv.Check(b, s.Poll(time.Now()))
		n := s.Done(results[:])
		if acked += n; n > 0 && acked == b.N {
			close(done)
		}
		return true
	})
	<-done
	b.StopTimer()
	b.ReportMetric(float64(k.stats().Progress)/float64(b.N), "progress/op")
}

// quickRound acknowledges every message that has arrived.
func (k *sink) quickRound() bool {
	n := k.r.Recv(k.buf[:])
	if n > 0 {
		d, _ := protocol.ParseDataHeader(k.region.Bytes(k.buf[n-1])[:protocol.HeaderLen])
		k.r.Acknowledge(k.region.Side(k.buf[n-1]).Queue, d.Sequence, d.Sequence)
		k.r.Supply(k.buf[:n])
	}
	if err := k.r.Poll(time.Now()); err != nil {
		k.wrong = err.Error()
	}
	return n > 0
}
