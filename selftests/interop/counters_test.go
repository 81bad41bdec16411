package interop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// counters are those of the guest's device, by the kernel's names
// (drivers/infiniband/sw/rxe/rxe_hw_counters.c).
type counters map[string]uint64

func (b *bench) counters(t *testing.T) counters {
	t.Helper()
	c := make(counters)
	for line := range strings.Lines(b.run(t, fmt.Sprintf("cd /sys/class/infiniband/%s/ports/1/hw_counters && grep -H . *", device))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatalf("the counter %q: %v", line, err)
		}
		c[name] = n
	}
	return c
}

// What stays as it is where nothing is lost: packets out of sequence, asked for again, or given up; and what was sent again
// because no acknowledgement came in time, by the device (timeouts) or by its peer (duplicates).
const (
	timeouts   = "completer_retry_err"
	duplicates = "duplicate_request"
)

var clean = []string{"out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "send_err", timeouts, duplicates}

// except is what is counted although nothing is lost: on a machine that does other things as well an emulated one now and then takes
// longer for an acknowledgement than who waits for it. In the long form all wait for a second and more, but for the device
// under the pingpong programs (67 ms), and on Linux 6.1, whose time runs from some packet on, whatever was acknowledged
// since, also with itself as peer.
func (b *bench) except(p program) []string {
	switch {
	case !b.long:
		return []string{timeouts, duplicates}
	case p.pingpong() || b.line.Name == "6.1":
		return []string{timeouts}
	}
	return nil
}

// since says what was counted after before, and of what nothing should have been.
func (c counters) since(before counters, except ...string) (all, wrong []string) {
	for name, n := range c {
		if n == before[name] || name == "lifespan" {
			continue
		}
		text := fmt.Sprintf("%s %d", name, n-before[name])
		all = append(all, text)
		if slices.Contains(clean, name) && !slices.Contains(except, name) {
			wrong = append(wrong, text)
		}
	}
	slices.Sort(all)
	slices.Sort(wrong)
	return all, wrong
}
