package pairs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHertz is the unit of /proc/stat on every architecture: USER_HZ of the kernel's user space interface.
const userHertz = 100

// started is the time from which Busy counts.
var started = time.Now()

// Busy returns how long the processors of this machine were not idle so far, in sum, up to a constant. It is computed
// from the time for which they were idle or not available to this machine, which the kernel counts exactly. The kernel
// counts busy time by ticks, which miss short periods.
func Busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	idle, cpus, err := idle(string(text))
	return time.Since(started)*time.Duration(cpus) - idle, err
}

// idle parses the first lines of /proc/stat: cpu user nice system idle iowait irq softirq steal, and then one for each
// processor.
func idle(text string) (t time.Duration, cpus int, err error) {
	line, rest, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks int64
	for _, i := range []int{4, 5, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "cpu") {
			break
		}
		cpus++
	}
	return time.Duration(ticks) * time.Second / userHertz, cpus, nil
}
