package testenv

import (
	"os"
	"time"
)

// slowness is how many times as long as elsewhere things may take: in the lab guest,
// whose processors are emulated, five times.
func slowness() int {
	if os.Getenv("UNIFIEDD_LAB_KERNEL") != "" {
		return 5
	}
	return 1
}

// Within is how long something may take that takes limit at most elsewhere.
func Within(limit time.Duration) time.Duration { return limit * time.Duration(slowness()) }

// Fewer is how many of n packets a test sends where all is slow: a fifth, and n elsewhere.
func Fewer(n int) int { return n / slowness() }
