package ring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Open opens a device that may have a ring, or a file, for reading. Of an NVMe node (/dev/ngXnY) it is the block device of the same
// disk. What the kernel has cached of a device is forgotten: commands to the node are written past it.
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

// Refresh forgets what the kernel has cached of n bytes from an offset on; 0: up to the end.
func Refresh(f *os.File, at, n uint64) {
	_ = unix.Fadvise(int(f.Fd()), int64(at), int64(n), unix.FADV_DONTNEED)
}

// openDisk opens the block device of a node, which it closes: /dev/nvme0n1 of /dev/ng0n1.
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
