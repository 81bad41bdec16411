// Package netnsdir makes and removes network namespaces with a name under /run/netns, as
// ip-netns(8) does. The first `ip netns add` after a boot mounts /run/netns on itself. That mount
// hides a namespace that was named before: it can no longer be unmounted by name, and its file
// cannot be removed. So this package prepares the directory first, in the same way and under the
// same lock as ip.
package netnsdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Dir is where named network namespaces are mounted.
const Dir = "/run/netns"

// Path returns where the namespace of that name is mounted.
func Path(name string) string { return filepath.Join(Dir, name) }

// New makes a namespace, names it and moves the calling thread into it. The
// caller locks its goroutine to the thread, and closes the handle.
func New(name string) (netns.NsHandle, error) {
	if err := prepare(); err != nil {
		return netns.None(), err
	}
	return netns.NewNamed(name)
}

// Delete removes the name. The namespace itself ends with its last process, socket and handle.
// Delete succeeds if the name does not exist.
func Delete(name string) error {
	if _, err := os.Lstat(Path(name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return netns.DeleteNamed(name)
}

// prepare makes Dir a mount point that propagates mounts to other mount namespaces. It holds an
// exclusive flock on the directory, which ip also takes.
func prepare() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	err = share()
	if errors.Is(err, unix.EINVAL) { // no mount point yet
		if err = unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("mount %s on itself: %w", Dir, err)
	}
	return nil
}

func share() error { return unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
