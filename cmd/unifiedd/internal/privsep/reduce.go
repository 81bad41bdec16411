package privsep

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/osthread"
)

// Securebits: include/uapi/linux/securebits.h.
const (
	noRoot       = 1 << 0 // user 0 has no capabilities by itself
	noRootLocked = 1 << 1
)

// reduce removes the rights that a program started from the calling thread must not have. The thread keeps
// the capabilities to become the user and to send signals; the program does not get those.
func reduce(self caps.Status, keep caps.Set, u *identity) error {
	if self.Effective.Has(caps.Setpcap) {
		if err := bound(self.Bounding, keep); err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, noRoot|noRootLocked, 0, 0, 0); err != nil {
			return fmt.Errorf("take root's privileges from user 0: %w", err)
		}
	}
	if err := setCapabilities(keep | changes(u)); err != nil {
		return fmt.Errorf("reduce capabilities to %v: %w", keep, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// bound removes all capabilities that are not in keep from the bounding set.
func bound(bounding, keep caps.Set) error {
	for _, n := range bounding.Minus(keep).Numbers() {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
			return fmt.Errorf("drop %v from the bounding set: %w", caps.Set(1)<<n, err)
		}
	}
	return nil
}

// setCapabilities gives the calling thread exactly these capabilities, permitted and effective, and
// none inheritable. The kernel reads two struct __user_cap_data_struct, one for each half
// (capset(2), version 3).
func setCapabilities(s caps.Set) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for half := range data {
		bits := uint32(uint64(s) >> (32 * half))
		data[half] = unix.CapUserData{Effective: bits, Permitted: bits}
	}
	return unix.Capset(&header, &data[0])
}

// StartBare starts a program without the capabilities of this process, which the program would inherit. wait returns when the
// program has ended. The thread that starts it does nothing else, and lives as long: a child whose thread has ended is one of
// the first thread, which waits for all of its children if this is process 1.
func StartBare(cmd *exec.Cmd) (wait func() error, err error) {
	started, ended := make(chan error), make(chan error, 1)
	go osthread.Run(func() {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			started <- fmt.Errorf("take the capabilities from %s: %w", cmd.Path, err)
			return
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	})
	return func() error { return <-ended }, <-started
}
