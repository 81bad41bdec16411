package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// slack is how late timers may be: from one of the kernel's ticks to the next, which end such timers on the way.
const slack = 4 * time.Millisecond

// unhurried lets timers of this process be late, also those of threads to come, and reports whether that is allowed (it takes
// CAP_SYS_NICE). The Go scheduler's monitor thread sleeps 20 µs at a time for a while after it has had something to do, and
// takes the processor from a thread that spins there each time it wakes up.
//
// proc_pid_timerslack_ns(5); a thread has the slack of the one that makes it.
func unhurried() bool {
	threads, err := filepath.Glob("/proc/self/task/*")
	for _, t := range threads {
		file := filepath.Join("/proc", filepath.Base(t), "timerslack_ns")
		if err == nil {
			err = os.WriteFile(file, strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
		}
	}
	return err == nil && len(threads) > 0
}
