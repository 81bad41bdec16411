//go:build verbs && cgo

package verbs

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// refusal is an error of the device, its driver or the kernel. It names the step, the object, the
// cause and the remedy.
func refusal(step string, with fmt.Stringer, errno unix.Errno, remedies map[unix.Errno]string) error {
	return fmt.Errorf("%s: %v: %w", step, with, explain(errno, remedies))
}

// explain adds the remedy to an error number.
func explain(errno unix.Errno, remedies map[unix.Errno]string) error {
	remedy, ok := remedies[errno]
	if !ok {
		remedy = remediesOfAll[errno]
	}
	if remedy == "" {
		return errno
	}
	return fmt.Errorf("%w (%s)", errno, remedy)
}

// remediesOfAll are remedies for errors that mean the same at each step.
var remediesOfAll = map[unix.Errno]string{
	unix.ENODEV:     "the device is gone",
	unix.EIO:        "the device is gone, or failed: see the kernel's log",
	unix.EACCES:     "give the user access to /dev/infiniband/uverbs*",
	unix.EPERM:      "give the user access to /dev/infiniband/uverbs*, or run as root",
	unix.ENOMEM:     "the device or its driver has no room for more, or RLIMIT_MEMLOCK is too low",
	unix.EOPNOTSUPP: "the device cannot",
	unix.ENOSYS:     "the device's driver cannot",
}

// memlock describes the limit on pinned memory.
func memlock() string {
	limit, err := Memlock()
	switch {
	case err != nil:
		return "unknown"
	case limit == math.MaxUint64:
		return "unlimited"
	}
	return fmt.Sprintf("%d KiB", limit>>10)
}
