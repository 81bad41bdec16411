package capture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// trickle is the work of the delay measurements: so few packets that no buffer becomes full.
var trickle = work{size: 1024, rate: 100}

const (
	trickled  = 20
	waitLimit = 5 * time.Second // longer is not waited for
)

// readableBar is within what time tcpdump must read a packet of ours, in seconds.
const readableBar = 0.5

// TestAgainstCapturesDelays compares how long after its arrival a packet appears in the files, of both of our
// engines.
func TestAgainstCapturesDelays(t *testing.T) {
	b := newBed(bench.Start(t, "capture-passive-delays", "Packets to disk, until they can be read", "unifiedd with engine: packet", "others"))
	taken := bench.Start(t, "capture-delays", "Packets to disk from AF_XDP sockets, until they can be read", withXDP, "others")
	some := b.wanted(trickle, b.engines())
	times := b.each(some, func(one contestant) (float64, error) {
		took, err := b.delay(one)
		return took.Seconds(), err
	})
	compareAll(b.Report, taken, bench.Comparison{Case: trickle.String(), Metric: "until readable", Unit: "s", Better: bench.Less}, some, times)
	if longest := slices.Max(times[0]); longest > readableBar {
		b.Notes = append(b.Notes, fmt.Sprintf("Missed: a packet could be read after %.2f s.", longest))
	}
	finishBoth(b.Report, taken,
		fmt.Sprintf("From when the last of %d packets was sent until tcpdump -r has all of them out of the files as they are then; %v: not until then. Of stenotype's files, which are hidden until they are full or old, what is in them.", trickled, waitLimit),
		"stenotype has what it got written after a second: 10 by default.")
}

// delay is how long packets take to appear in a contestant's files.
func (b *bed) delay(c contestant) (took time.Duration, err error) {
	r, err := b.begin(c)
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(r.dir)
	defer func() { err = errors.Join(err, r.end()) }()
	if _, err := b.sendCount(trickle, trickled); err != nil {
		return 0, err
	}
	for began := time.Now(); took < waitLimit; time.Sleep(5 * time.Millisecond) {
		n, err := b.readable(r)
		if took = time.Since(began); err != nil || n >= trickled {
			return took, err
		}
	}
	return took, nil
}

// readable is how many packets tcpdump finds in a contestant's files while they are written. It cannot read
// stenotype's; this package reads those.
func (b *bed) readable(r *receiver) (n int, err error) {
	if r.of.name == "stenotype" {
		found, err := r.found(trickled)
		return int(found.numbers), err
	}
	files, err := filepath.Glob(filepath.Join(r.dir, r.of.files))
	for _, name := range files {
		out, err := exec.Command(testenv.Tool(b, "tcpdump"), "-n", "-r", name).Output()
		if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) { // it ends with an error where a file ends within a packet
			return n, err
		}
		n += bytes.Count(out, []byte("\n"))
	}
	return n, err
}
