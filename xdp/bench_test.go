package xdp

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// BenchmarkRecvSupply measures the time of the two verbs for a packet of real traffic, without the waiting.
// One operation is one packet received and its frame supplied again, in batches of up to 64.
func BenchmarkRecvSupply(b *testing.B) {
	for _, stamps := range []bool{false, true} {
		b.Run(fmt.Sprintf("timestamps=%v", stamps), func(b *testing.B) {
			pair := testenv.NewPair(b, testenv.PairOptions{NoAddresses: true})
			g := newRig(b, umem.Config{Size: 32 << 20})
			i := g.open(&pair.B, Config{RingSize: 4096, Direction: Receive, Timestamps: stamps})
			p := i.Ports()[0]
			g.supply(p, 4096)
			g.start(i)
			defer g.flood(&pair.A, &pair.B, 1024)()
			batch := make([]umem.Frame, 64)
			var busy time.Duration
			b.ResetTimer()
			for left := b.N; left > 0; {
				begin := time.Now()
				n := p.Recv(batch[:min(left, len(batch))])
				if n > 0 {
					p.Supply(batch[:n])
					busy += time.Since(begin)
					left -= n
					continue
				}
				time.Sleep(200 * time.Microsecond)
			}
			b.StopTimer()
			b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N), "verb-ns/packet")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			l, err := i.Ledger()
			testenv.Must(b, err)
			b.ReportMetric(float64(l.Lost())/float64(max(l.Offered, 1))*100, "%lost")
		})
	}
}

// flood sends from one end to the other as fast as an AF_XDP port can, until stop is called.
func (g *rig) flood(a, b *testenv.End, size int) (stop func()) {
	g.Helper()
	book := g.region.NewBook("flood")
	holder, err := book.NewHolder(umem.OwnerWorker, "flood")
	testenv.Must(g, err)
	i := g.open(a, Config{Direction: Send, RingSize: 1024, Holder: holder})
	p := i.Ports()[0]
	fs := make([]umem.Frame, 512)
	holder.Take(fs)
	for n := range fs {
		fs[n].Len = uint32(size)
		copy(g.region.Bytes(fs[n]), packet(a, b, uint32(n), size))
	}
	var end atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !end.Load() {
			fs = append(fs[:0], fs[p.Send(fs):]...)
			if p.Kick() != nil {
				return
			}
			fs = reapInto(p, fs, size)
		}
	}()
	return func() {
		end.Store(true)
		<-done
		testenv.Check(g, i.Close())
		holder.Close()
		testenv.Check(g, book.Close())
	}
}

// reapInto reaps frames and makes them full again.
func reapInto(p *Port, fs []umem.Frame, size int) []umem.Frame {
	at := len(fs)
	fs = fs[:at+p.Reap(fs[at:cap(fs)])]
	for n := range fs[at:] {
		fs[at+n].Len = uint32(size)
	}
	return fs
}

// BenchmarkSendReap measures sending in the same way. It includes the kernel's work, which in copy
// mode happens inside Kick.
func BenchmarkSendReap(b *testing.B) {
	pair := testenv.NewPair(b, testenv.PairOptions{NoAddresses: true})
	g := newRig(b, small())
	p := g.open(&pair.A, Config{Direction: Send}).Ports()[0]
	full := g.load(packets(&pair.A, &pair.B, 64, 1024))
	back := make([]umem.Frame, 64)
	b.ResetTimer()
	for left := b.N; left > 0; left -= 64 {
		if n := p.Send(full); n != 64 {
			b.Fatalf("Send took %d", n)
		}
		for reaped := 0; reaped < 64; reaped += p.Reap(back) {
			testenv.Must(b, p.Kick())
		}
	}
}

// BenchmarkVerbs measures what one packet costs from Send to Supply, on one thread, including the
// kernel's work in between.
func BenchmarkVerbs(b *testing.B) {
	pair := testenv.NewPair(b, testenv.PairOptions{NoAddresses: true})
	g := newRig(b, small())
	from := g.open(&pair.A, Config{Direction: Send}).Ports()[0]
	i := g.open(&pair.B, Config{Direction: Receive})
	g.supply(i.Ports()[0], 256)
	g.start(i)
	r := newRoad(g, from, i.Ports()[0], &pair.A, &pair.B, 64, 1024)
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= 64 {
		r.round(b)
	}
}
