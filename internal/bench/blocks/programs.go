package blocks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// rateBar is the least rate of ours, as a share of fio's.
const rateBar = 0.9

// reader reads for a time span.
type reader func(ctx context.Context, size, depth int, span time.Duration) (sample, error)

// run runs a program on a CPU and reads its output.
func run(ctx context.Context, cpu int, read func([]byte) (sample, error), command []string) (sample, error) {
	out, _, err := bench.RunProcess(ctx, cpu, command[0], command[1:]...)
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
