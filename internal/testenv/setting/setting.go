// Package setting reads the environment variables for the long forms of tests. It is separate from
// testenv so that tests without devices can use it.
package setting

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Number returns a number from the environment, or its default.
func Number(t testing.TB, name string, otherwise uint64) uint64 {
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

// Seed returns the seed of what a test draws, and logs it: UNIFIEDD_SEED, or else 1 in short runs, which are the same test
// each time, and a random one in long runs.
func Seed(t testing.TB) uint64 {
	t.Helper()
	otherwise := uint64(1)
	if !testing.Short() {
		otherwise = uint64(time.Now().UnixNano())
	}
	seed := Number(t, "UNIFIEDD_SEED", otherwise)
	t.Logf("UNIFIEDD_SEED=%d", seed)
	return seed
}
