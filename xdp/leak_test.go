package xdp

import (
	"os"
	"testing"
)

// openFDs counts the process's descriptors. Those of the Go runtime and the test
// environment exist before the first test does.
func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
