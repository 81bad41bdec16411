package testenv

import "os"

// Programs that tests start, and the children of those programs, end at a system call outside the
// daemon's list (internal/seccomp). The test then fails.
func init() {
	if err := os.Setenv("UNIFIEDD_SYSTEM_CALLS", "trap"); err != nil {
		panic(err)
	}
}
