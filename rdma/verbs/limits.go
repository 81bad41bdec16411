package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Memlock returns how many bytes of memory this process may pin for devices (RLIMIT_MEMLOCK);
// math.MaxUint64 means no limit. A region must fit in it.
func Memlock() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return 0, fmt.Errorf("read the limit on pinned memory: %w", err)
	}
	return limit.Cur, nil
}
