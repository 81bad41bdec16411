package testenv

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// required reports whether this run must not skip anything: CI=true or
// UNIFIEDD_REQUIRE set.
func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("UNIFIEDD_REQUIRE") != ""
}

// Long skips the test in short runs (go test -short). why says why short runs do not need it.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: " + why)
	}
}

// OnMachine skips the test if UNIFIEDD_EMULATED says that its program runs in an emulator of
// another processor, which lacks what the test needs.
func OnMachine(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("UNIFIEDD_EMULATED") != "" {
		t.Skip("emulated: the emulator has no " + what)
	}
}

// Root skips the test if it does not run as root, or if UNIFIEDD_DEVICES is "no", as in make check. If required
// says that nothing may be skipped, it fails the test instead.
func Root(t testing.TB) {
	t.Helper()
	OnMachine(t, "devices")
	if os.Getenv("UNIFIEDD_DEVICES") == "no" {
		t.Skip("devices: make check uses none")
	}
	if os.Geteuid() == 0 {
		return
	}
	if required() {
		t.Fatal("this test needs root, and CI or UNIFIEDD_REQUIRE says it must run: run it with sudo")
	}
	t.Skip("needs root")
}

// Tool returns the path of an external program. It fails the test if the program is not installed.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("look for %s: %v (install the test programs: scripts/setup.sh demo test)", name, err)
	}
	return path
}

// execTool runs an external program until it ends and returns its output.
func execTool(t testing.TB, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(Tool(t, name), args...).CombinedOutput()
	return string(out), err
}

// leastWait is the shortest limit of Wait. A test that shares two processors with others may not
// run for seconds. A test that bounds a time measures the time itself.
const leastWait = 30 * time.Second

// Wait polls cond every few milliseconds until it is true. It fails the test with what if that takes longer
// than limit and leastWait. In the lab guest it allows five times limit. The kernel frees many resources
// late (queues, huge pages, namespaces), so a test must not check them only once.
func Wait(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	limit = max(Within(limit), leastWait)
	if !within(limit, cond) {
		t.Fatalf("waited %v for %s", limit, what)
	}
}

// within polls cond until it is true or limit has passed, and returns its last result.
func within(limit time.Duration, cond func() bool) bool {
	end := time.Now().Add(limit)
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			return cond()
		}
		time.Sleep(pause)
	}
	return true
}
