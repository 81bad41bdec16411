package starter

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// StartBare starts a program without the capabilities of this process, which it would
// inherit. The thread that starts it is used for nothing else and ends.
func StartBare(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			started <- fmt.Errorf("take the capabilities from %s: %w", cmd.Path, err)
			return
		}
		started <- cmd.Start()
	}()
	return <-started
}
