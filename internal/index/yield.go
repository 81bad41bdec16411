package index

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Yield lowers the priority of a process whose only task is an index: its threads run when a
// processor is idle, and read when a disk is idle. It ignores errors.
func Yield() {
	runtime.GOMAXPROCS(1)
	const (
		whoProcess = 1
		idleClass  = 3 << 13
	)
	for range 2 { // a thread started in between has its creator's priority
		tasks, _ := os.ReadDir("/proc/self/task")
		for _, t := range tasks {
			id, _ := strconv.Atoi(t.Name())
			_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
			_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, uintptr(id), idleClass)
		}
	}
}
