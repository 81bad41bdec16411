package interop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// counters are the counters of the guest's device, by the kernel's names
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

// The counters that must not change without loss. They count packets out of sequence, packets that
// were requested again, and messages that were given up. They also count retransmissions because an
// acknowledgement was late: by the device (timeouts) or by its peer (duplicates).
const (
	timeouts   = "completer_retry_err"
	duplicates = "duplicate_request"
)

var clean = []string{"out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "send_err", timeouts, duplicates}

// except returns the counters that may change without loss. On a busy machine the emulated one
// sometimes acknowledges later than the peer's timeout. Under the pingpong programs the device
// waits only 67 ms, which no option changes, for an acknowledgement.
func (b *bench) except() []string {
	if !b.long {
		return []string{timeouts, duplicates}
	}
	return []string{timeouts}
}

// since returns what the device counted after before, and the counters that should not have
// changed.
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
