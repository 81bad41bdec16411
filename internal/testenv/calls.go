package testenv

import "os"

// Programs that tests start, and those started by these, end at a system call outside
// the daemon's list (internal/seccomp), so that a test fails.
func init() {
	if err := os.Setenv("UNIFIEDD_SYSTEM_CALLS", "trap"); err != nil {
		panic(err)
	}
}
