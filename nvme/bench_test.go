package nvme

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// BenchmarkRandom reads and writes 4 KiB at random places. It sleeps in Wait instead of spinning.
func BenchmarkRandom(b *testing.B) {
	for _, k := range kinds[:2] {
		for _, depth := range []int{1, 64} {
			for _, write := range []bool{false, true} {
				name := fmt.Sprintf("%s/depth=%d/write=%t", k.name, depth, write)
				b.Run(name, func(b *testing.B) { benchRandom(b, k.config(b, 64<<20), depth, write) })
			}
		}
	}
}

func benchRandom(b *testing.B, c TargetConfig, depth int, write bool) {
	r := newRig(b, umem.Config{}, Config{Depth: depth})
	t, i := r.open(c)
	blocks := t.Size() / 4096
	start, finish := r.queue.Supply, r.queue.Recv
	if write {
		start, finish = r.queue.Send, r.queue.Reap
	}
	fs := r.take(depth)
	for k, f := range fs {
		r.fill(f, uint64(k))
	}
	b.SetBytes(4096)
	b.ReportAllocs()
	b.ResetTimer()
	done, flying := 0, 0
	for done < b.N {
		for _, f := range fs {
			r.at(f, i, rand.Uint64N(blocks)*4096)
		}
		flying += start(fs)
		testenv.Must(b, r.queue.WaitFor(depth/4, -1))
		n := finish(fs[:cap(fs)])
		fs = fs[:n]
		flying -= n
		done += n
	}
	b.StopTimer()
	for flying > 0 {
		testenv.Must(b, r.queue.WaitFor(depth/4, -1))
		flying -= finish(fs[:cap(fs)])
	}
	b.ReportMetric(float64(r.queue.Stats().Enters)/float64(b.N), "enters/op")
}
