package index

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Yield lowers the priority of a process that does nothing else: its threads run when a processor
// is idle, and read when a disk is. It ignores refusals of the system.
func Yield() {
	runtime.GOMAXPROCS(1)
	const (
		whoProcess = 1
		idleClass  = 3 << 13
	)
	for range 2 { // threads begun meanwhile are as who began them
		tasks, _ := os.ReadDir("/proc/self/task")
		for _, t := range tasks {
			id, _ := strconv.Atoi(t.Name())
			_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
			_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, uintptr(id), idleClass)
		}
	}
}
