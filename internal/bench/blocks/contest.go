package blocks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// rateBar is what ours reads of what fio does.
const rateBar = 0.9

// contest is one case of two programs.
type contest struct {
	size, depth int
	rival       string // what is compared with
	bar         float64
	ours        reader
	theirs      reader
	pairs       [2][]sample
}

// reader reads for a while.
type reader func(ctx context.Context, size, depth int, span time.Duration) (sample, error)

// round measures each once.
func (c *contest) round(ctx context.Context, i int, span time.Duration) error {
	var runs []func() error
	for k, read := range []reader{c.ours, c.theirs} {
		runs = append(runs, func() error {
			s, err := read(ctx, c.size, c.depth, span)
			c.pairs[k] = append(c.pairs[k], s)
			return err
		})
	}
	if err := bench.Round(i, runs...); err != nil {
		return fmt.Errorf("%s, round %d: %w", c.name(), i+1, err)
	}
	return nil
}

func (c *contest) name() string {
	return fmt.Sprintf("%d KiB, depth %d, %s", c.size>>10, c.depth, c.rival)
}

// compare is what came of it.
func (c *contest) compare() (all []bench.Comparison) {
	for _, m := range []struct {
		name, unit string
		better     bench.Direction
		bar        float64
		of         func(sample) float64
	}{
		{"bytes", "MB/s", bench.More, c.bar, func(s sample) float64 { return s.rate * float64(c.size) / 1e6 }},
		{"50%", "µs", bench.Less, 0, func(s sample) float64 { return s.p50 }},
		{"99%", "µs", bench.Less, 0, func(s sample) float64 { return s.p99 }},
		{"99.9%", "µs", bench.Less, 0, func(s sample) float64 { return s.p99_9 }},
	} {
		r := bench.Comparison{Case: c.name(), Metric: m.name, Unit: m.unit, Better: m.better, Bar: m.bar}
		for i := range c.pairs[0] {
			r.Pairs = append(r.Pairs, bench.Pair{Ours: m.of(c.pairs[0][i]), Theirs: m.of(c.pairs[1][i])})
		}
		all = append(all, r)
	}
	return all
}

// run runs a program on a CPU and reads what it prints.
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

// verified is one in how many requests the client compares with what must be there: fio looks at none.
const verified = 64

// clientArgs is the command line of unified-flow-test, inside its namespace.
func clientArgs(program, netns, card, address string, size, depth int, span time.Duration) []string {
	return []string{"nsenter", "--net=" + netns, "--", program, "read", "-json", "-spin", "-device", "roce:" + card, "-memory", strconv.Itoa(clientRegion),
		"-extents", strconv.Itoa(clientExtents), "-from", address, "-seed", strconv.Itoa(seed), "-size", strconv.Itoa(size), "-depth", strconv.Itoa(depth),
		"-for", span.String(), "-verify", strconv.Itoa(verified)}
}

// What the client has room for: two rings of frames, and as many requests as are under way, longer than a frame.
const (
	clientRegion  = 96 << 20
	clientExtents = 36
	seed          = 7 // of the file's blocks
)
