package doctor

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

const cpuDir = "/sys/devices/system/cpu/"

func processors(n needs) []Check {
	isolated := parseList(readLine(cpuDir + "isolated"))
	checks := []Check{
		cpus(), isolation(isolated),
		goThreads(runtime.GOMAXPROCS(0), len(n.Workers)), spinning(len(allowed()), n.Workers),
		governor(), clock(), synchronized(),
	}
	checks = append(checks, numaNodes(n)...)
	for _, w := range n.Workers {
		if w.CPU != nil {
			checks = append(checks, pinned(w, allowed(), isolated))
		}
	}
	return checks
}

// cpus counts the CPUs that are online, and those of them that the process may use.
func cpus() Check {
	online, may := parseList(readLine(cpuDir+"online")), allowed()
	if len(may) < len(online) {
		return ok("CPUs", "%d online, %d for this process: %s", len(online), len(may), ranges(may))
	}
	return ok("CPUs", "%d online", len(online))
}

// allowed returns the CPUs that the process may run on; none if the kernel does not say.
func allowed() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var out []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

func isolation(isolated []int) Check {
	if len(isolated) == 0 {
		return ok("isolated CPUs", "none: the scheduler may run other work on the workers' processors")
	}
	return ok("isolated CPUs", "%s", ranges(isolated))
}

// goThreads compares the number of threads that Go runs at once with the workers plus two. Each
// worker takes one. With fewer than two for all else, control work would wait for tens of
// milliseconds.
func goThreads(procs, workers int) Check {
	need := workers + 2
	if procs < need {
		return ok("Go threads", "GOMAXPROCS is %d, which the daemon raises to %d", procs, need)
	}
	return ok("Go threads", "GOMAXPROCS is %d, at least %d are wanted", procs, need)
}

// spinning compares the CPUs with the workers that never release theirs.
func spinning(cpus int, workers []config.Worker) Check {
	spin := 0
	for _, w := range workers {
		if w.Wait == config.WaitSpin {
			spin++
		}
	}
	if spin > 0 && spin >= cpus {
		return warn("spinning workers", "%d for %d CPUs: nothing is left for the kernel's part and for all else", spin, cpus).
			with("remove wait: spin, or have fewer workers")
	}
	return ok("spinning workers", "%d for %d CPUs", spin, cpus)
}

// governor checks the frequency governor: Documentation/admin-guide/pm/cpufreq.rst.
func governor() Check {
	const name = "CPU frequency"
	files, _ := filepath.Glob(cpuDir + "cpu[0-9]*/cpufreq/scaling_governor")
	var kinds []string
	for _, f := range files {
		if kind := readLine(f); kind != "" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	switch {
	case len(kinds) == 0:
		return ok(name, "not governed by the kernel")
	case len(kinds) == 1 && kinds[0] == "performance":
		return ok(name, "governor performance")
	}
	return warn(name, "governor %s: a CPU which was idle starts slowly", strings.Join(kinds, ", ")).
		with("cpupower frequency-set -g performance")
}

// clock checks the clock source. Reading any clock but the CPU's own is a system call, and the
// workers read it often.
func clock() Check {
	const name = "clock source"
	source := readLine("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	switch source {
	case "tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page":
		return ok(name, "%s", source)
	case "":
		return unknown(name, "the kernel does not say")
	}
	return warn(name, "%s: every look at the clock is a system call", source).
		with("boot with clocksource=tsc, where the kernel trusts it")
}

// pinned checks the CPU of one worker.
func pinned(w config.Worker, may, isolated []int) Check {
	name, cpu := "worker "+w.Name, *w.CPU
	switch {
	case !slices.Contains(parseList(readLine(cpuDir+"online")), cpu):
		return fail(name, "CPU %d is not online", cpu).with("choose another for workers[].cpu")
	case !slices.Contains(may, cpu):
		return fail(name, "CPU %d is not for this process (it may use %s)", cpu, ranges(may)).
			with("widen the cpuset or AllowedCPUs, or choose another for workers[].cpu")
	case slices.Contains(isolated, cpu):
		return ok(name, "CPU %d, isolated", cpu)
	}
	return ok(name, "CPU %d", cpu)
}

// ranges writes numbers as the kernel does: "0-3,8".
func ranges(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1] == all[last]+1 {
			last++
		}
		if last == i {
			parts = append(parts, fmt.Sprint(all[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[last]))
		}
		i = last + 1
	}
	return strings.Join(parts, ",")
}
