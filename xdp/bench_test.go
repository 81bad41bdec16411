package xdp

import (
	"sync/atomic"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

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
