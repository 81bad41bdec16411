package blocks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
)

// rateBar is the least rate of ours, as a share of fio's.
const rateBar = 0.9

// reader reads for a time span.
type reader func(ctx context.Context, size, depth int, span time.Duration) (sample, error)

// newContest makes one case of two programs: blocks of size bytes, depth requests in flight.
func newContest(size, depth int, rival string, bar float64, span time.Duration, ours, theirs reader) *contest.Contest[sample] {
	c := &contest.Contest[sample]{Name: fmt.Sprintf("%d KiB, depth %d, %s", size>>10, depth, rival)}
	for _, read := range []reader{ours, theirs} {
		c.Programs = append(c.Programs, func(ctx context.Context) (sample, error) { return read(ctx, size, depth, span) })
	}
	c.Measures = []contest.Measure[sample]{
		{Metric: "bytes", Unit: "MB/s", Better: bench.More, Bar: bar, Theirs: 1, Of: func(s sample) float64 { return s.rate * float64(size) / 1e6 }},
		{Metric: "50%", Unit: "µs", Better: bench.Less, Theirs: 1, Of: func(s sample) float64 { return s.p50 }},
		{Metric: "99%", Unit: "µs", Better: bench.Less, Theirs: 1, Of: func(s sample) float64 { return s.p99 }},
		{Metric: "99.9%", Unit: "µs", Better: bench.Less, Theirs: 1, Of: func(s sample) float64 { return s.p99_9 }},
	}
	return c
}

// run runs a program on a CPU and reads its output.
func run(ctx context.Context, cpu int, read func([]byte) (sample, error), command []string) (sample, error) {
	out, _, err := bench.Run(ctx, cpu, command[0], command[1:]...)
	if err != nil {
		return sample{}, err
	}
	s, err := read(out)
	if err != nil {
		err = errors.Join(fmt.Errorf("result of %s: %w", command[0], err), errors.New(string(out)))
	}
	return s, err
}

// fioArgs is the command line of fio.
func fioArgs(fio, file string, size, depth int, span time.Duration) []string {
	return []string{fio, "--ioengine=io_uring", "--direct=1", "--fixedbufs", "--registerfiles", "--norandommap", "--name=bench",
		"--output-format=json", "--lat_percentiles=1", "--percentile_list=50:99:99.9", "--rw=randread", "--filename=" + file,
		"--bs=" + strconv.Itoa(size), "--iodepth=" + strconv.Itoa(depth), "--time_based", fmt.Sprintf("--runtime=%dms", span.Milliseconds())}
}

// verified says that the client checks the contents of one in so many requests. fio checks none.
const verified = 64

// clientArgs is the command line of unified-flow-test, inside its namespace.
func clientArgs(program, netns, card, address string, size, depth int, span time.Duration) []string {
	return []string{"nsenter", "--net=" + netns, "--", program, "read", "-json", "-spin", "-device", "roce:" + card, "-memory", strconv.Itoa(clientRegion),
		"-extents", strconv.Itoa(clientExtents), "-from", address, "-seed", strconv.Itoa(seed), "-size", strconv.Itoa(size), "-depth", strconv.Itoa(depth),
		"-for", span.String(), "-verify", strconv.Itoa(verified)}
}

// The client's memory: two rings of frames, and room for the requests in flight, which are longer than a
// frame.
const (
	clientRegion  = 96 << 20
	clientExtents = 36
	seed          = 7 // of the file's blocks
)
