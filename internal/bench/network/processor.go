package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// processTime is the processor time of a process so far, without threads that have ended.
func processTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(files) == 0 {
		err = errors.New("it has no schedstat (has it ended? the kernel needs CONFIG_SCHED_INFO)")
	}
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	var sum time.Duration
	for _, name := range files {
		ns, err := firstNumber(name)
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// firstNumber reads a file that begins with a number.
func firstNumber(name string) (int64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseInt(first, 10, 64)
}

// userHertz is the unit of /proc/stat on every architecture: USER_HZ of the kernel's user space
// interface.
const userHertz = 100

// busyTime is how long all processors were not idle so far, in sum, including interrupts where the
// kernel accounts for them.
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks int64
	for i, f := range fields[1:8] { // user nice system idle iowait irq softirq
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / userHertz, nil
}
