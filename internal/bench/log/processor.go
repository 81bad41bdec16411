package log

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// userHertz is the unit of /proc/stat on every architecture: USER_HZ of the kernel's user space interface.
const userHertz = 100

// started is the time from which busyTime counts.
var started = time.Now()

// busyTime returns how long the processors were not idle so far, in sum, up to a constant. It is computed
// from the time for which they were idle or not available to this machine, which the kernel counts exactly.
// The kernel counts busy time by ticks, which miss short periods.
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	idle, err := idleTime(string(text))
	return time.Since(started)*time.Duration(runtime.NumCPU()) - idle, err
}

// idleTime parses the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal.
func idleTime(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks int64
	for _, i := range []int{4, 5, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHertz, nil
}

// spent is the processor time so far of processes and of the processes that they have started, without
// threads that have ended.
func spent(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		for _, task := range threads(pid) {
			ns, started := ofTask(task)
			sum += ns + spent(started...)
		}
	}
	return sum
}

func threads(pid int) []string {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is good
	return all
}

// ofTask returns the processor time of a thread and the processes that it has started; zero if it
// has ended.
func ofTask(task string) (ns time.Duration, started []int) {
	text, _ := os.ReadFile(filepath.Join(task, "schedstat"))
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseInt(first, 10, 64)
	text, _ = os.ReadFile(filepath.Join(task, "children"))
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			started = append(started, pid)
		}
	}
	return time.Duration(n), started
}
