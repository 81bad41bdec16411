package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep sleeps about as long as it says. time.Sleep takes a millisecond at least where nothing else runs: the Go scheduler then waits in
// epoll_wait(2), which counts in those. An interrupted nap is a shorter one.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}
