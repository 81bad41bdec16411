package testenv

import (
	"os"
	"time"
)

// slowness is the factor by which operations may take longer than on a usual machine. It is five in
// the lab guest, whose processors are emulated.
func slowness() int {
	if os.Getenv("UNIFIEDD_LAB_KERNEL") != "" {
		return 5
	}
	return 1
}

// Within returns how long an operation may take that takes at most limit on a usual machine.
func Within(limit time.Duration) time.Duration { return limit * time.Duration(slowness()) }

// Fewer returns how many of n packets a test sends: a fifth in the lab guest, and n elsewhere.
func Fewer(n int) int { return n / slowness() }
