package blocks

import (
	"errors"
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// BenchmarkRead reads from all over a disk, with several requests at a time, from the disk and from
// the cache. Server and client are one program on one machine, with RDMA in software on both sides.
func BenchmarkRead(b *testing.B) {
	for _, cache := range []uint64{0, 32 << 20} {
		for _, size := range []uint32{4 << 10, 64 << 10} {
			for _, depth := range []int{1, 32} {
				name := fmt.Sprintf("cache=%d/size=%d/depth=%d", cache, size, depth)
				b.Run(name, func(b *testing.B) { benchmarkRead(b, cache, size, depth) })
			}
		}
	}
}

func benchmarkRead(b *testing.B, cache uint64, size uint32, depth int) {
	g := newRig(b, umem.Config{Size: 128 << 20, Pages: umem.Ordinary, ExtentSize: extent, Extents: 160})
	v := g.far.serve(newDisk(b, diskSize), Config{Cache: cache, Clients: 2, Transfer: 256 << 10})
	u := g.near.newCustomer(v, ClientConfig{}, 0, 32)
	free, open := append([]umem.Frame(nil), u.extents...), 0
	done := make([]Done, depth)
	next := func(n int) {
		for ; n > 0 && open < depth; n, open = n-1, open+1 {
			f := free[len(free)-1]
			free = free[:len(free)-1]
			f.Len = size
			if did, err := u.Submit(Read{Offset: u.rand.Uint64N(diskSize/uint64(size)) * uint64(size), Frame: f}); !did {
				b.Fatal("there is no room for a request", err)
			}
		}
	}
	b.SetBytes(int64(size))
	b.ResetTimer()
	for left, answered := b.N, 0; answered < b.N; {
		was := open
		next(left)
		left -= open - was
		n, err := u.Poll(done)
		for _, d := range done[:n] {
			err = errors.Join(err, d.Err)
			free = append(free, d.Frame)
		}
		testenv.Must(b, err)
		open, answered = open-n, answered+n
	}
	b.StopTimer()
	if l := v.settled().Latency; l != nil {
		b.ReportMetric(float64(l.P50), "p50-ns")
		b.ReportMetric(float64(l.P99), "p99-ns")
	}
}
