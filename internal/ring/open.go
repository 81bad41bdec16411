package ring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Open opens a device that may have a ring, or a file, for reading. For an NVMe node (/dev/ngXnY) it opens
// the block device of the same disk. Open drops the kernel's cache of a device, because commands to the node
// bypass it.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if info.Mode()&os.ModeCharDevice != 0 {
		if f, err = openDisk(path, f); err != nil {
			return nil, err
		}
	}
	if info.Mode()&os.ModeDevice != 0 {
		Refresh(f, 0, 0)
	}
	return f, nil
}

// Refresh drops the kernel's cache of n bytes from an offset on; with n = 0, up to the end.
func Refresh(f *os.File, at, n uint64) {
	_ = unix.Fadvise(int(f.Fd()), int64(at), int64(n), unix.FADV_DONTNEED)
}

// openDisk opens the block device of a node, and closes the node: /dev/nvme0n1 for /dev/ng0n1.
func openDisk(path string, node *os.File) (*os.File, error) {
	var st unix.Stat_t
	err := errors.Join(unix.Fstat(int(node.Fd()), &st), node.Close())
	if err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	rest, is := strings.CutPrefix(filepath.Base(dir), "ng")
	if err != nil || !is {
		return nil, fmt.Errorf("%s is a character device and no NVMe node (/dev/ngXnY)", path)
	}
	return os.Open("/dev/nvme" + rest)
}
