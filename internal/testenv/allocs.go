package testenv

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// AllocsPerRun returns how often the code of this module, but for that of tests, allocates in each run of f, on any
// goroutine. Code allocates now and then, for example when the kernel reports a change of a route, and more often per
// run on a busy machine. So it counts, for each place of the program, only whole allocations per run, and logs those
// places. Any goroutine may call it. Under the race detector, which allocates by itself, it returns 0.
func AllocsPerRun(t testing.TB, runs int, f func()) float64 {
	t.Helper()
	f()
	return float64(Allocs(t, uint64(runs), func() {
		for range runs {
			f()
		}
	}))
}

// Allocs is AllocsPerRun of one run, for each of the parts of its work, such as messages.
func Allocs(t testing.TB, parts uint64, f func()) (n uint64) {
	t.Helper()
	if raceEnabled {
		f()
		return 0
	}
	before := allocations()
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1 // each allocation
	f()
	runtime.MemProfileRate = rate
	for stack, count := range allocations() {
		each := uint64(count-before[stack]) / parts
		if text, ours := describeStack(stack); each > 0 && ours {
			n += each
			t.Logf("%d allocations for each of %d:\n%s", each, parts, text)
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

// describeStack lists the functions of a stack. ours says that the innermost one of this module is not in a file of tests.
func describeStack(stack stackTrace) (text string, ours bool) {
	n := slices.Index(stack[:], 0)
	if n < 0 {
		n = len(stack)
	}
	var all strings.Builder
	found := false
	for frames := runtime.CallersFrames(stack[:n]); ; {
		f, more := frames.Next()
		fmt.Fprintf(&all, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		if !found && strings.HasPrefix(f.Function, module+"/") {
			found, ours = true, !strings.HasSuffix(f.File, "_test.go")
		}
		if !more {
			return all.String(), ours
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
