package labenv

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Ext4 makes a file system on a block device and mounts it until the end of the test. It returns
// the mount point.
func Ext4(t testing.TB, device string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command(testenv.Tool(t, "mkfs.ext4"), "-q", "-F", device).CombinedOutput(); err != nil {
		t.Fatalf("make a file system on %s: %v\n%s", device, err, out)
	}
	Mount(t, device, dir, 0)
	t.Cleanup(func() { Unmount(t, dir) })
	return dir
}

// Mount mounts a file system that Ext4 made, with flags of mount(2).
func Mount(t testing.TB, device, dir string, flags uintptr) {
	t.Helper()
	testenv.Mustf(t, unix.Mount(device, dir, "ext4", flags, ""), "mount %s on %s", device, dir)
}

// Unmount unmounts a file system that is not in use.
func Unmount(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatalf("unmount %s: %v (something on it is still open)", dir, err)
	}
}
