package starter

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
)

// Securebits: include/uapi/linux/securebits.h.
const (
	noRoot       = 1 << 0 // being user 0 gives no capabilities
	noRootLocked = 1 << 1
)

// reduce takes from the calling thread, for good, what a program started from it
// shall not have. What it takes to become the user and to signal it stays, in this
// thread; the program is started without.
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

// bound drops from the bounding set what is not kept.
func bound(bounding, keep caps.Set) error {
	for _, n := range bounding.Minus(keep).Numbers() {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
			return fmt.Errorf("drop %v from the bounding set: %w", caps.Set(1)<<n, err)
		}
	}
	return nil
}
