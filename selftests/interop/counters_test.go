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

// clean are those that stay as they are where nothing is lost: packets out of sequence, asked for again,
// or sent again.
var clean = []string{
	"duplicate_request", "out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err", timeouts, "send_err",
}

// timeouts is how often the device waited too long for an acknowledgement. On Linux 6.1 it does so now and then however soon
// they come, also with itself: the time runs from some packet on, whatever has been acknowledged since.
const timeouts = "completer_retry_err"

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
