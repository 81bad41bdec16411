//go:build verbs && cgo

package verbs

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// refusal is an error of the device, its driver or the kernel: the step, the object that it was tried with, why it failed, and what can be
// done about it.
func refusal(step string, with fmt.Stringer, errno unix.Errno, remedies map[unix.Errno]string) error {
	return fmt.Errorf("%s: %v: %w", step, with, explain(errno, remedies))
}

// explain adds to an error number what can be done about it.
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

// remediesOfAll are for what means the same at each step.
var remediesOfAll = map[unix.Errno]string{
	unix.ENODEV:     "the device is gone",
	unix.EIO:        "the device is gone, or failed: see the kernel's log",
	unix.EACCES:     "give the user access to /dev/infiniband/uverbs*",
	unix.EPERM:      "give the user access to /dev/infiniband/uverbs*, or run as root",
	unix.ENOMEM:     "the device or its driver has no room for more, or RLIMIT_MEMLOCK is too low",
	unix.EOPNOTSUPP: "the device cannot",
	unix.ENOSYS:     "the device's driver cannot",
}

// memlock is the limit on pinned memory, in words.
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
