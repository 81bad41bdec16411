package nvme

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// KernelWorkers counts the threads that the kernel has started for io_uring in
// this process, of all its rings: io-wq's, named iou-wrk-… after the submitter. An
// operation goes to one when submitting it would block: a flush always, and a read
// or write where blocks must be allocated, the file system cannot do without, or
// the device does not know how to refuse (zram). It costs several times an inline
// one. Idle threads stay for a few seconds. See proc_pid_task(5).
func KernelWorkers() (int, error) {
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it may have ended meanwhile
			return 0, fmt.Errorf("count the kernel's threads: %w", err)
		}
		if strings.HasPrefix(string(text), "iou-wrk-") {
			n++
		}
	}
	return n, nil
}
