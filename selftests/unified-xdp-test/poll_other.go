//go:build !amd64

package main

import "golang.org/x/sys/unix"

// pollLong is not there on architectures that have ppoll(2) only.
func pollLong([]unix.PollFd) bool { return false }
