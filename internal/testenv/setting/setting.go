// Package setting reads the environment variables for the long forms of tests. It is separate from
// testenv so that tests without devices can use it.
package setting

import (
	"os"
	"strconv"
	"testing"
)

// Number returns a number from the environment, or its default.
func Number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
