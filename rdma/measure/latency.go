package measure

import (
	"fmt"
	"math"
	"slices"
)

// Way is the kind of a latency test: it says which part of the time between two posts counts.
type Way int

const (
	// OneWay is for SEND and WRITE. The peer answers with its own message before the next is
	// posted, so half of the time counts.
	OneWay Way = 2
	// RoundTrip is for READ and atomics.
	RoundTrip Way = 1
)

func (w Way) String() string {
	if w == OneWay {
		return "one way"
	}
	return "round trip"
}

// tail is how many of the largest times the average and the percentiles leave out.
const tail = 2

// minPosted is the smallest number of points in time that give a latency.
const minPosted = tail + 2

// Latency is a row of a latency table. Times are in microseconds.
type Latency struct {
	Bytes      uint64 // of a message
	Iterations uint64
	Way        Way
	Min        float64
	Max        float64 // the smallest of the times that are left out
	Typical    float64 // median
	Average    float64
	// Stdev is the deviation as perftest computes it, from differences and squares cut to whole
	// numbers. It is 0 for times that differ by less than a microsecond.
	Stdev float64
	// Deviation is the standard deviation.
	Deviation float64
	P99, P999 float64
}

// NewLatency sums up a latency test of messages of size bytes from the points in time, in
// nanoseconds, at which they were posted. It takes at least four, in order.
func NewLatency(size uint64, way Way, posted []uint64) (Latency, error) {
	if len(posted) < minPosted {
		return Latency{}, fmt.Errorf("latency of %d messages: it takes at least %d", len(posted), minPosted)
	}
	times, err := differences(posted)
	if err != nil {
		return Latency{}, err
	}
	slices.Sort(times)
	n, micro := len(times)-tail, 1000*float64(way)
	in := func(i int) float64 { return float64(times[i]) / micro }
	l := Latency{Bytes: size, Iterations: uint64(len(posted)), Way: way, Min: in(0), Max: in(n), Typical: float64(median(times[:n])) / micro,
		P99: in(int(math.Ceil(float64(n) * 0.99))), P999: in(int(math.Ceil(float64(n) * 0.999)))}
	l.spread(times[:n], micro)
	return l, nil
}

func differences(posted []uint64) ([]uint64, error) {
	times := make([]uint64, len(posted)-1)
	for i := range times {
		if posted[i+1] < posted[i] {
			return nil, fmt.Errorf("message %d was posted before message %d", i+1, i)
		}
		times[i] = posted[i+1] - posted[i]
	}
	return times, nil
}

func median(times []uint64) uint64 {
	n := len(times)
	if n%2 == 0 {
		return (times[n/2] + times[n/2-1]) / 2
	}
	return times[n/2]
}

// spread computes the average and both deviations. The conversions keep the compiler from
// fusing a product with a sum, which would round otherwise.
func (l *Latency) spread(times []uint64, micro float64) {
	n := float64(len(times))
	var sum float64
	for _, t := range times {
		sum += float64(t) / micro
	}
	l.Average = sum / n
	var whole, exact float64
	for _, t := range times {
		d := l.Average - float64(t)/micro
		whole += float64(math.Trunc(d) * math.Trunc(d))
		exact += float64(d * d)
	}
	l.Stdev, l.Deviation = math.Sqrt(whole/n), math.Sqrt(exact/n)
}
