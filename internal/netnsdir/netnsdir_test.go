package netnsdir_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/netnsdir"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestBeforeIP: a namespace that New made before the first `ip netns add` since the boot can be
// removed after it.
func TestBeforeIP(t *testing.T) {
	testenv.Root(t)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its mount namespace end with the goroutine
		result <- beforeIP()
	}()
	testenv.Must(t, <-result)
}

func beforeIP() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "none", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// A new /run hides the machine's own /run/netns.
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount an empty /run: %w", err)
	}
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	ns, err := netnsdir.New("early")
	if err != nil {
		return fmt.Errorf("make a namespace: %w", err)
	}
	defer ns.Close()
	if err := netns.Set(home); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "netns", "add", "late").CombinedOutput(); err != nil {
		return fmt.Errorf("ip netns add: %w: %s", err, out)
	}
	if err := netnsdir.Delete("early"); err != nil {
		return fmt.Errorf("delete the namespace that was made before ip's: %w", err)
	}
	if err := netnsdir.Delete("early"); err != nil {
		return fmt.Errorf("delete it a second time: %w", err)
	}
	return netnsdir.Delete("late")
}
