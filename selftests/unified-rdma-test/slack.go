package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// slack is how late timers may fire: one period of the kernel's tick. The next tick ends such timers.
const slack = 4 * time.Millisecond

// unhurried raises the timer slack of all threads of this process, and of threads that they will
// create. It reports whether that is allowed (it takes CAP_SYS_NICE). After the Go scheduler's
// monitor thread has had work, it sleeps only 20 µs at a time for a while. Each wake-up takes the
// processor from a thread that spins there.
//
// proc_pid_timerslack_ns(5): a thread inherits the slack of the thread that creates it.
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
