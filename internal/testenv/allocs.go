package testenv

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// AllocsPerRun returns how often f allocates in each run, like testing.AllocsPerRun. Other goroutines of the process
// allocate now and then, for example when the kernel reports a change of a route, and more often per run on a busy
// machine. So it counts, for each place of the program, only whole allocations per run, and logs those places. It skips
// the rest of the test under the race detector.
func AllocsPerRun(t testing.TB, runs int, f func()) float64 {
	t.Helper()
	f()
	return float64(Allocs(t, uint64(runs), func() {
		for range runs {
			f()
		}
	}))
}

// Allocs runs f, and returns how often the process allocated for each of parts of its work, such as messages. Each place
// of the program counts by itself, rounded down, and those that count are logged. It skips the rest of the test under
// the race detector.
func Allocs(t testing.TB, parts uint64, f func()) (n uint64) {
	t.Helper()
	NoRace(t, "it allocates by itself")
	before := allocations()
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1 // each allocation
	f()
	runtime.MemProfileRate = rate
	for stack, count := range allocations() {
		if each := uint64(count-before[stack]) / parts; each > 0 {
			n += each
			t.Logf("%d allocations for each of %d:\n%s", each, parts, describeStack(stack))
		}
	}
	return n
}

// stackTrace is the place of an allocation.
type stackTrace = [32]uintptr

// allocations returns how many objects the process has allocated by place, as far as they are sampled.
func allocations() map[stackTrace]int64 {
	runtime.GC() // the profile is complete after two
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 1<<10)
	n, ok := runtime.MemProfile(records, true)
	for !ok {
		records = make([]runtime.MemProfileRecord, n+n/4)
		n, ok = runtime.MemProfile(records, true)
	}
	all := make(map[stackTrace]int64, n)
	for _, r := range records[:n] {
		all[r.Stack0] += r.AllocObjects
	}
	return all
}

func describeStack(stack stackTrace) string {
	var text strings.Builder
	pcs := stack[:]
	for i, pc := range pcs {
		if pc == 0 {
			pcs = pcs[:i]
			break
		}
	}
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		fmt.Fprintf(&text, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return text.String()
		}
	}
}

// NoRace skips the test under the race detector. why says what is wrong with its result there.
func NoRace(t testing.TB, why string) {
	t.Helper()
	if raceEnabled {
		t.Skip("race detector: " + why)
	}
}
