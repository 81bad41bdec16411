package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// processItems returns the files about the daemon's process.
func processItems(pid int) []Item {
	if pid <= 0 {
		return nil
	}
	return []Item{{"process.txt", func(_ context.Context, w io.Writer) error { return process(w, pid) }}}
}

// plainVariables are variables of the environment whose values a report may have.
var plainVariables = []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK", "LANG", "LC_ALL", "TZ", "TMPDIR",
	"INVOCATION_ID", "NOTIFY_SOCKET", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "IBV_FORK_SAFE", "RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE", "MLX5_SINGLE_THREADED"}

// process writes the kernel's view of a process: its command line, limits, memory, cgroup and threads.
func process(w io.Writer, pid int) error {
	dir := fmt.Sprintf("/proc/%d/", pid)
	command, err := readSome(dir+"cmdline", 64<<10)
	if err != nil {
		return fmt.Errorf("look at the daemon's process: %w", err)
	}
	fmt.Fprintf(w, "== command line\n%s\n", strings.TrimSpace(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))))
	fmt.Fprintln(w, "\n== environment")
	others := 0
	for _, v := range environment(pid) {
		if name, _, _ := strings.Cut(v, "="); slices.Contains(plainVariables, name) {
			fmt.Fprintln(w, v)
		} else {
			others++
		}
	}
	fmt.Fprintf(w, "and %d variables that are left out\n", others)
	errs := []error{show(w, dir+"status", dir+"limits", dir+"cgroup", dir+"schedstat", dir+"smaps_rollup", dir+"io")}
	errs = append(errs, cgroup(w, dir))
	fmt.Fprintln(w, "\n== threads")
	tasks, _ := os.ReadDir(dir + "task")
	for _, t := range tasks {
		at := dir + "task/" + t.Name() + "/"
		name, _ := readSome(at+"comm", 64)
		where, _ := readSome(at+"wchan", 64)
		state, _ := readSome(at+"stat", 1024)
		fields := strings.Fields(string(state[bytes.LastIndexByte(state, ')')+1:]))
		if len(fields) < 13 {
			continue // it has ended
		}
		fmt.Fprintf(w, "%s %-16s %s, waits in %q, user %s and system %s ticks\n", t.Name(), bytes.TrimSpace(name), fields[0], where, fields[11], fields[12])
	}
	return errors.Join(errs...)
}

// cgroupLimits are the files of a cgroup that say what it may use, and how much it uses.
var cgroupLimits = []string{"cpu.max", "cpu.stat", "cpuset.cpus.effective", "cpuset.mems.effective", "memory.max", "memory.current", "memory.events", "hugetlb.*.max", "hugetlb.*.current", "pids.max"}

// cgroup writes the limits of the process's cgroup, version 2.
func cgroup(w io.Writer, dir string) error {
	text, err := readSome(dir+"cgroup", 4096)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, name := range cgroupLimits {
			found, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", path, name))
			err = errors.Join(err, show(w, found...))
		}
	}
	return err
}

// environment returns the variables of a process, or none if this user may not read them.
func environment(pid int) []string {
	text, err := readSome(fmt.Sprintf("/proc/%d/environ", pid), 1<<20)
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}
