package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// How long threads want to run at a time.
const (
	usualTurns = 0
	longTurns  = 100_000_000 // nanoseconds, the longest that the kernel takes
)

// turnsOf are the turns for a test on a device in software. Whoever wakes up and wants shorter ones goes first: the kernel's threads
// that do the device's work, which would not take the processor from a thread with turns like theirs before it had a whole
// one. In a test of bandwidth who receives gives the rest of its turn away: there a long one would be long to wait for.
func turnsOf(j job) uint64 {
	if j.Test == latencyTest {
		return longTurns
	}
	return usualTurns
}

// takeTurns asks the scheduler for turns of so many nanoseconds for the threads of this process, also those to come. Linux before
// 6.12 ignores it, and where it is not allowed things are as they were.
//
// sched_setattr(2), sched_runtime of SCHED_OTHER; a thread has the turns of the one that makes it.
func takeTurns(nanoseconds uint64) {
	threads, _ := os.ReadDir("/proc/self/task") // what is read of it is what there is
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if a, err := unix.SchedGetAttr(id, 0); err == nil && a.Policy == unix.SCHED_NORMAL {
			a.Runtime = nanoseconds
			_ = unix.SchedSetAttr(id, a, 0) // the thread may have ended
		}
	}
}

// software says whether threads of the kernel do the device's work.
func (s *session) software() bool { return s.device != nil && s.device.Capabilities().Software }
