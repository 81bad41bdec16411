package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// grace is the time between the request for a process's stacks and its kill.
const grace = 5 * time.Second

// limit sends SIGQUIT to a process after d, which makes a Go program print its stacks, and kills it
// after the grace. The caller must call ended when the process has ended. ended reports whether the
// time limit had passed.
func limit(pid int, d time.Duration) (ended func() bool) {
	over, late := make(chan struct{}), make(chan bool)
	go func() {
		if before(over, d) {
			late <- false
			return
		}
		_ = unix.Kill(pid, unix.SIGQUIT)
		if !before(over, grace) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		late <- true
	}()
	return func() bool { close(over); return <-late }
}

// before reports whether over closes within d.
func before(over <-chan struct{}, d time.Duration) bool {
	select {
	case <-over:
		return true
	case <-time.After(d):
		return false
	}
}
