package stream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// BenchmarkIdlePeers measures a receiver's round that receives a few messages of one peer while
// other connected peers send nothing.
func BenchmarkIdlePeers(b *testing.B) {
	for _, peers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) { benchIdlePeers(b, peers) })
	}
}

func benchIdlePeers(b *testing.B, peers int) {
	g := newRig(b)
	c := receiverConfig()
	c.Message, c.Window, c.Peers, c.Check = 512, 4, 256, false
	k := g.far.newSink(c, 1100)
	var spent time.Duration
	rounds := 0
	k.on(func() {
		k.rounds = []func() bool{func() bool {
			begin := time.Now()
			moved := k.quickRound()
			if moved {
				spent, rounds = spent+time.Since(begin), rounds+1
			}
			return moved
		}}
	})
	from := g.near.newLoop("source")
	senders := make([]*Sender, peers)
	from.on(func() {
		for i := range senders {
			var err error
			senders[i], err = OpenSender(SenderConfig{Name: "bench", Endpoint: g.near.at, Worker: from.hands, Address: k.address, Flow: "log", Message: 512, Depth: 16})
			testenv.Check(b, err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, peers)
	for _, s := range senders {
		go from.ns.Do(b, func() { ran <- s.Run(ctx, from.do) })
	}
	frames := from.take(1)
	b.Cleanup(func() {
		cancel()
		for range senders {
			from.must(<-ran)
		}
		from.on(func() {
			from.rounds = nil
			for _, s := range senders {
				from.must(s.Close())
			}
			from.hands.Give(frames)
		})
	})
	all := true // poll the idle senders, too
	acked := 0
	var results [64]Result
	from.each(func() bool {
		for _, s := range senders[1:] {
			if all {
				from.must(s.Poll(time.Now()))
			}
		}
		if !all {
			senders[0].Send([]umem.Frame{{Addr: frames[0].Addr, Len: 64}}, 64, 0, 0, 0)
		}
		from.must(senders[0].Poll(time.Now()))
		acked += senders[0].Done(results[:])
		return true
	})
	testenv.Wait(b, 30*time.Second, "all to be connected", func() bool {
		n := 0
		for _, s := range senders {
			if s.Stats().State == SenderConnected {
				n++
			}
		}
		return n == peers
	})
	idle := time.Duration(0)
	k.on(func() {
		const turns = 10000
		for begin := time.Now(); rounds < turns; idle = time.Since(begin) / turns {
			k.quickRound()
			rounds++
		}
		spent, rounds = 0, 0
	})
	from.on(func() { all = false })
	b.ResetTimer()
	testenv.Wait(b, time.Minute, "the messages to be acknowledged", func() (done bool) {
		from.on(func() { done = acked >= b.N })
		return done
	})
	b.StopTimer()
	k.on(func() { b.ReportMetric(float64(spent)/float64(rounds), "ns/round") })
	b.ReportMetric(float64(idle), "ns/idle-round")
}
