package xdp

import (
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// openFDs counts the process's descriptors. Those of the Go runtime and the test environment exist
// before the first test.
func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	testenv.Must(t, err)
	return len(entries)
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func openFile(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	testenv.Must(t, err)
	return f
}
