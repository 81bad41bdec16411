package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// grace is the time between asking a process for its stacks and killing it.
const grace = 5 * time.Second

// limit has a process asked with SIGQUIT after d, which has a Go program print its
// stacks, and killed after the grace. ended must be called when the process has
// ended, and reports whether its time had run out.
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

// before reports whether over was closed within d.
func before(over <-chan struct{}, d time.Duration) bool {
	select {
	case <-over:
		return true
	case <-time.After(d):
		return false
	}
}
