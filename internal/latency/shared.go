package latency

import (
	"math/bits"

	"github.com/unifiedd/unifiedd/internal/counter"
)

// Shared counts times that one goroutine records while others read. Its accuracy is about three percent, up
// to slightly more than a minute. The zero value is empty.
type Shared struct {
	counts [buckets]counter.Counter
	sum    counter.Counter
	least  counter.Counter // and one; 0: none yet
	most   counter.Counter
}

// A power of two is divided into fine parts. Times below fine have a bucket each.
const (
	fineBits = 5
	fine     = 1 << fineBits
	powers   = 36 // bits of the longest time with a bucket of its own
	buckets  = (powers - fineBits + 1) * fine
)

// Record counts one time in nanoseconds. One goroutine at a time may call it. It neither allocates nor locks.
func (s *Shared) Record(ns uint64) {
	s.counts[bucketOf(ns)].Add(1)
	s.sum.Add(ns)
	s.bounds(ns, ns)
}

// bounds notes the shortest and the longest of some times.
func (s *Shared) bounds(least, most uint64) {
	if most > s.most.Load() {
		s.most.Set(most)
	}
	if l := s.least.Load(); l == 0 || least+1 < l {
		s.least.Set(least + 1)
	}
}

func bucketOf(ns uint64) int {
	power := bits.Len64(ns) - fineBits - 1
	if power <= 0 {
		return int(ns)
	}
	return min(power<<fineBits+int(ns>>power), buckets-1)
}

// middle is a time in the middle of a bucket.
func middle(bucket int) int64 {
	power := bucket>>fineBits - 1
	if power <= 0 {
		return int64(bucket)
	}
	low := int64(bucket-power<<fineBits) << power
	return low + int64(1)<<power/2
}

// Summary summarises the recorded times; nil if there are none. Any goroutine may call it.
func (s *Shared) Summary() *Summary {
	var counts [buckets]uint64
	var total uint64
	for i := range counts {
		counts[i] = s.counts[i].Load()
		total += counts[i]
	}
	if total == 0 {
		return nil
	}
	at := func(share float64) int64 {
		want := uint64(share * float64(total))
		var seen uint64
		for i, n := range counts {
			if seen += n; seen > want {
				return min(middle(i), int64(s.most.Load()))
			}
		}
		return int64(s.most.Load())
	}
	return &Summary{Count: int64(total), Mean: float64(s.sum.Load()) / float64(total), Min: int64(s.least.Load()) - 1,
		P50: at(0.50), P99: at(0.99), P999: at(0.999), Max: int64(s.most.Load())}
}
