package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// DiskDir returns an empty directory whose files support direct I/O. The end of the test removes
// it. It is the test's own temporary directory. If that is in memory, it is a directory under the
// checkout's build directory.
func DiskDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if takesDirect(dir) {
		return dir
	}
	build := filepath.Join(checkout(t), "build")
	Must(t, os.MkdirAll(build, 0o755))
	dir, err := os.MkdirTemp(build, "test-")
	Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if !takesDirect(dir) {
		t.Fatalf("files in %s take no direct I/O, nor do temporary files: set TMPDIR to a directory on a disk", dir)
	}
	return dir
}

// takesDirect makes a file in dir and asks the kernel whether it supports direct I/O
// (STATX_DIOALIGN, Linux 6.1).
func takesDirect(dir string) bool {
	f, err := os.CreateTemp(dir, "probe-")
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var stat unix.Statx_t
	err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stat)
	return err == nil && stat.Dio_mem_align != 0
}

// checkout returns the root of the module, the nearest directory above with a
// go.mod.
func checkout(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if exists(filepath.Join(dir, "go.mod")) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("find go.mod above the working directory: %v", err)
	return ""
}

// DiskFile makes a file of size bytes that supports direct I/O and returns its path. Its blocks are
// allocated but not written, as fallocate(2) leaves them. Size 0 makes an empty file.
func DiskFile(t testing.TB, size uint64) string {
	t.Helper()
	f, err := os.Create(filepath.Join(DiskDir(t), "disk"))
	Must(t, err)
	defer f.Close()
	if size == 0 {
		return f.Name()
	}
	Mustf(t, unix.Fallocate(int(f.Fd()), 0, 0, int64(size)), "allocate %d bytes for %s", size, f.Name())
	return f.Name()
}

// Ext4 makes an ext4 file system on a device of size bytes (at least 1 MiB), mounts it and returns
// the mount point. It is for tests that fill a disk. The end of the test unmounts and removes it,
// and fails if a file on it is still open.
func Ext4(t testing.TB, size uint64) string {
	t.Helper()
	dev := Loop(t, DiskFile(t, size), 0)
	mkfs(t, dev)
	dir := t.TempDir()
	forget := note(t, "mount", dir)
	if err := unix.Mount(dev, dir, "ext4", unix.MS_NOATIME, ""); err != nil {
		forget()
		t.Fatalf("mount %s on %s: %v", dev, dir, err)
	}
	t.Cleanup(func() {
		t.Helper()
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v (something on it is still open)", dir, err)
			_ = unmount(dir)
		}
		forget()
	})
	return dir
}

// mkfs makes a file system without a journal and without blocks reserved for root, so that "full"
// means full.
func mkfs(t testing.TB, dev string) {
	t.Helper()
	out, err := execTool(t, "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", dev)
	if err != nil {
		t.Fatalf("make a file system on %s: %v\n%s", dev, err, out)
	}
}

// unmount detaches the mount even if it is busy.
func unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if err == unix.EINVAL || err == unix.ENOENT {
		return nil // not mounted, or gone
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}
