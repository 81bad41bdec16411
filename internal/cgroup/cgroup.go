package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hierarchy is one mounted hierarchy of groups.
type hierarchy struct {
	mount string   // directory where it is mounted
	names []string // controllers of version 1; nil: version 2
	dir   string   // directory of our group
}

// levels returns the directories of our group and those above it, as far as they are mounted.
func (h hierarchy) levels() (all []string) {
	for dir := h.dir; ; dir = filepath.Dir(dir) {
		all = append(all, dir)
		if dir == h.mount || len(dir) <= len(h.mount) {
			return all
		}
	}
}

// own returns the hierarchies that this process is in.
func own() []hierarchy {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	return parse(string(mounts), string(groups))
}

// parse finds our group in each hierarchy: proc_pid_mountinfo(5), cgroups(7).
func parse(mounts, groups string) (all []hierarchy) {
	for line := range strings.Lines(mounts) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields, types := strings.Fields(mount), strings.Fields(kind)
		if len(fields) < 5 || len(types) < 3 || types[0] != "cgroup2" && types[0] != "cgroup" {
			continue
		}
		h := hierarchy{mount: fields[4]}
		if types[0] == "cgroup" {
			h.names = strings.Split(types[2], ",")
		}
		at, found := group(groups, h.names)
		if !found {
			continue
		}
		// The mount shows the tree below its root. A group elsewhere is not visible, and the root is the nearest.
		rest, below := strings.CutPrefix(at, strings.TrimSuffix(fields[3], "/"))
		if !below || strings.Contains(rest, "..") {
			rest = ""
		}
		h.dir = filepath.Join(h.mount, rest)
		if _, err := os.Stat(h.dir); err != nil {
			h.dir = h.mount
		}
		all = append(all, h)
	}
	return all
}

// group returns our group among lines of /proc/self/cgroup; no names: that of version 2.
func group(groups string, names []string) (path string, found bool) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		if names == nil && parts[0] == "0" && parts[1] == "" {
			return parts[2], true
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			if name != "" && slices.Contains(names, name) {
				return parts[2], true
			}
		}
	}
	return "", false
}

// number reads a file with one number. ok is false if there is none, or it means that there is no limit.
func number(dir, name string) (n uint64, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n < 1<<62
}

// Limit is a limit, and the file that sets it.
type Limit struct {
	File string
	CPUs float64 // of [CPUs]: how many CPUs' time the group may use
	Left uint64  // of [HugePages]: bytes that it may still take
}

// CPUs returns the smallest quota of processors' time, or false if there is none. It is not the set of CPUs, which
// sched_getaffinity(2) has.
func CPUs() (Limit, bool) { return cpus(own()) }

func cpus(all []hierarchy) (least Limit, found bool) {
	take := func(file string, quota, period uint64) {
		if l := (Limit{File: file, CPUs: float64(quota) / float64(max(period, 1))}); !found || l.CPUs < least.CPUs {
			least, found = l, true
		}
	}
	for _, h := range all {
		for _, dir := range h.levels() {
			if quota, ok := number(dir, "cpu.cfs_quota_us"); ok && h.names != nil {
				period, _ := number(dir, "cpu.cfs_period_us")
				take(filepath.Join(dir, "cpu.cfs_quota_us"), quota, period)
			}
			text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
			fields := strings.Fields(string(text))
			if err != nil || len(fields) != 2 {
				continue
			}
			quota, errQuota := strconv.ParseUint(fields[0], 10, 64)
			period, errPeriod := strconv.ParseUint(fields[1], 10, 64)
			if errQuota == nil && errPeriod == nil {
				take(filepath.Join(dir, "cpu.max"), quota, period)
			}
		}
	}
	return least, found
}

// pairs are the files with a limit of huge pages and with what is in use, of both versions. A limit of reservations
// makes mmap(2) fail; the other one ends a process with SIGBUS when it touches the memory.
var pairs = [][2]string{
	{"max", "current"}, {"rsvd.max", "rsvd.current"},
	{"limit_in_bytes", "usage_in_bytes"}, {"rsvd.limit_in_bytes", "rsvd.usage_in_bytes"},
}

// HugePages returns the group that may take the least huge pages of a size, in bytes, or false if none is limited.
func HugePages(size uint64) (Limit, bool) { return hugePages(own(), size) }

func hugePages(all []hierarchy, size uint64) (least Limit, found bool) {
	prefix := "hugetlb." + strconv.FormatUint(size>>20, 10) + "MB."
	if size >= 1<<30 {
		prefix = "hugetlb." + strconv.FormatUint(size>>30, 10) + "GB."
	}
	for _, h := range all {
		for _, dir := range h.levels() {
			for _, p := range pairs {
				most, ok := number(dir, prefix+p[0])
				if !ok {
					continue
				}
				used, _ := number(dir, prefix+p[1])
				if l := (Limit{File: filepath.Join(dir, prefix+p[0]), Left: most - min(used, most)}); !found || l.Left < least.Left {
					least, found = l, true
				}
			}
		}
	}
	return least, found
}
