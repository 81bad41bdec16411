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

// Long leaves the test out of short runs (go test -short), saying why it can be
// spared there.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: " + why)
	}
}

// OnMachine leaves the test out where UNIFIEDD_EMULATED says that its program runs
// in an emulator of another processor, which has not what the test asks for.
func OnMachine(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("UNIFIEDD_EMULATED") != "" {
		t.Skip("emulated: the emulator has no " + what)
	}
}

// Root skips the test when it does not run as root, and fails it instead where
// required says that nothing may be skipped.
func Root(t testing.TB) {
	t.Helper()
	OnMachine(t, "devices")
	if os.Geteuid() == 0 {
		return
	}
	if required() {
		t.Fatal("this test needs root, and CI or UNIFIEDD_REQUIRE says it must run: run it with sudo")
	}
	t.Skip("needs root")
}

// Tool returns the path of an external program and fails the test when it is
// not installed.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("look for %s: %v (install the test programs: make setup-test)", name, err)
	}
	return path
}

// execTool runs an external program to its end and returns what it printed.
func execTool(t testing.TB, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(Tool(t, name), args...).CombinedOutput()
	return string(out), err
}

// leastWait is how long Wait waits at least. A test that shares two processors with others may
// not run for seconds; one that bounds a time measures it.
const leastWait = 30 * time.Second

// Wait polls cond every few milliseconds until it is true, and fails the test
// with what when that takes longer than limit and leastWait, in the lab guest five times
// limit. The kernel gives many things back late (queues, huge pages, namespaces), so nothing
// should be judged once.
func Wait(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	limit = max(Within(limit), leastWait)
	if !within(limit, cond) {
		t.Fatalf("waited %v for %s", limit, what)
	}
}

// within polls cond until it is true or limit has passed, and returns its last
// answer.
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
