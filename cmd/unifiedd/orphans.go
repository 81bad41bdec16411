package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

// init keeps main on the first thread of process 1, for reapOrphans.
func init() {
	if os.Getpid() == 1 {
		runtime.LockOSThread()
	}
}

// reapOrphans waits for processes whose parents have ended. The kernel makes them children of process 1, such as the first one of
// a container, and of its first thread. Nothing of this program starts a process there, so each of its own children has somebody
// else who waits. It does not return.
func reapOrphans() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for range ended {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WNOTHREAD, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}
