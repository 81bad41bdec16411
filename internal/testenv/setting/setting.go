// Package setting reads what the long forms of tests are told by the environment. It stands
// apart from testenv, for tests that use no devices.
package setting

import (
	"os"
	"strconv"
	"testing"
)

// Number is a number from the environment, or its default.
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
