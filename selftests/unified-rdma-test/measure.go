package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Latency and bandwidth are computed as perftest 4.5-0.17 (version 6.06) computes them, including the rounding
// (perftest_parameters.c, print_report_lat and print_report_bw), so that a row can be compared with one of ib_send_lat
// or ib_write_bw. The tests compare rows with those that its code prints.

// ticks records points in time, in nanoseconds.
type ticks struct {
	at    []uint64
	next  int
	began time.Time
}

// newTicks makes room for n points.
func newTicks(n int) *ticks { return &ticks{at: make([]uint64, n), began: time.Now()} }

// now appends the present time. A nil ticks records nothing.
func (t *ticks) now() {
	if t != nil {
		t.set(t.next)
		t.next++
	}
}

// set stores the present time in place i.
func (t *ticks) set(i int) { t.at[i] = uint64(time.Since(t.began)) }

// tail is how many of the largest times the average and the percentiles leave out.
const tail = 2

// latencyRow is a row of a latency table. Times are in microseconds.
type latencyRow struct {
	Bytes      uint64  `json:"bytes"` // of a message
	Iterations uint64  `json:"iterations"`
	Way        string  `json:"measured"`
	Min        float64 `json:"t_min_usec"`
	Max        float64 `json:"t_max_usec"`     // the smallest of the times that are left out
	Typical    float64 `json:"t_typical_usec"` // median
	Average    float64 `json:"t_avg_usec"`
	// Stdev is the deviation as perftest computes it, from differences and squares cut to whole
	// numbers. It is 0 for times that differ by less than a microsecond.
	Stdev     float64 `json:"t_stdev_usec"`
	Deviation float64 `json:"standard_deviation_usec"`
	P99       float64 `json:"percentile_99_usec"`
	P999      float64 `json:"percentile_99_9_usec"`
}

// latencyOf sums up a latency test of messages of size bytes from the times at which they were posted. Where the peer
// answers with its own message before the next is posted (twoWay), half of the time between two posts counts.
func latencyOf(size uint64, twoWay bool, posted []uint64) (latencyRow, error) {
	l := latencyRow{Bytes: size, Iterations: uint64(len(posted)), Way: "round trip"}
	if len(posted) < tail+2 {
		return l, fmt.Errorf("latency of %d messages: it takes at least %d", len(posted), tail+2)
	}
	micro := 1000.0
	if twoWay {
		l.Way, micro = "one way", 2000
	}
	times := make([]uint64, len(posted)-1)
	for i := range times {
		times[i] = posted[i+1] - posted[i]
	}
	slices.Sort(times)
	n := len(times) - tail
	in := func(i int) float64 { return float64(times[i]) / micro }
	l.Min, l.Max, l.Typical = in(0), in(n), float64((times[n/2]+times[(n-1)/2])/2)/micro
	l.P99, l.P999 = in(int(math.Ceil(float64(n)*0.99))), in(int(math.Ceil(float64(n)*0.999)))
	l.spread(times[:n], micro)
	return l, nil
}

// spread computes the average and both deviations. The conversions keep the compiler from
// fusing a product with a sum, which would round otherwise.
func (l *latencyRow) spread(times []uint64, micro float64) {
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

// second is one second in the unit of the times.
const second = 1_000_000_000

// megabyte is "MB" of perftest.
const megabyte = 1 << 20

// peakLimit is the number of messages above which perftest computes no peak.
const peakLimit = 20_000

// bandwidthRow is a row of a bandwidth table.
type bandwidthRow struct {
	Bytes      uint64  `json:"bytes"` // of a message
	Iterations uint64  `json:"iterations"`
	Unit       string  `json:"unit"`
	Peak       float64 `json:"bw_peak"` // of the best interval from a post to a completion; 0: not computed
	Average    float64 `json:"bw_average"`
	Rate       float64 `json:"msg_rate_mpps"` // millions of messages a second
}

// bandwidthOf computes the row from the times when each message was posted, and when each every-th and the last were
// complete. The other entries of completed are ignored.
func bandwidthOf(size uint64, every int, posted, completed []uint64) (bandwidthRow, error) {
	n := len(posted)
	b := bandwidthRow{Bytes: size, Iterations: uint64(n), Unit: "MB/sec"}
	if completed[n-1] <= posted[0] {
		return b, errors.New("bandwidth: the last completion is not after the first post")
	}
	took := float64(completed[n-1] - posted[0])
	b.Average, b.Rate = float64(size)*float64(n)*second/(took*megabyte), float64(n)*second/(took*1e6)
	if n <= peakLimit {
		b.Peak = float64(size) * second / (float64(best(every, posted, completed)) * megabyte)
	}
	return b, nil
}

// best returns the least time per message from any post to any completion, cut to whole nanoseconds
// and at least one. The number of steps is the number of pairs of a message and a completion.
func best(every int, posted, completed []uint64) uint64 {
	last := len(posted) - 1
	least := uint64(math.MaxUint64)
	for i, at := range posted {
		for j := i/every*every + every - 1; j <= last; j += every {
			least = min(least, (completed[j]-at)/uint64(j-i+1))
		}
		least = min(least, (completed[last]-at)/uint64(last-i+1))
	}
	return max(least, 1)
}

// rule is the line above and below a table.
var rule = strings.Repeat("-", 87)

func (l *latencyRow) print(out io.Writer) {
	fmt.Fprintf(out, "%s\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec] \n%s\n%s\n",
		rule, l.row(), rule)
}

func (l *latencyRow) row() string {
	return fmt.Sprintf(" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f",
		l.Bytes, l.Iterations, l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.P99, l.P999)
}

func (b *bandwidthRow) print(out io.Writer) {
	fmt.Fprintf(out, "%s\n #bytes     #iterations    BW peak[%s]    BW average[%[2]s]   MsgRate[Mpps]\n%s\n%s\n", rule, b.Unit, b.row(), rule)
}

func (b *bandwidthRow) row() string {
	return fmt.Sprintf(" %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f", b.Bytes, b.Iterations, b.Peak, b.Average, b.Rate)
}
