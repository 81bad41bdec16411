package log

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

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
