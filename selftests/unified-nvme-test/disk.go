package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// otherPath returns the path where read(2) finds the target's bytes. An NVMe node accepts commands
// only, so for a node it is the block device of the same disk.
func (t *tester) otherPath() string {
	if t.target.Passthrough() {
		return blockOf(t.target.Path())
	}
	return t.target.Path()
}

// blockOf returns the block device of an NVMe node's disk: /dev/nvme0n1 for /dev/ng0n1.
func blockOf(node string) string {
	if real, err := filepath.EvalSymlinks(node); err == nil {
		node = real
	}
	return filepath.Join("/dev", "nvme"+strings.TrimPrefix(filepath.Base(node), "ng"))
}

// through returns the path for read(2), if it is not the target.
func (t *tester) through() string {
	if t.target.Passthrough() {
		return " in " + t.otherPath()
	}
	return ""
}

// readDisk reads the target through read(2). Commands to a node do not change the kernel's cache of
// the disk, so readDisk drops the cache first.
func (t *tester) readDisk(b []byte, at uint64) error {
	f, err := os.Open(t.otherPath())
	if err != nil {
		return err
	}
	defer f.Close()
	if t.target.Passthrough() {
		if err := unix.Fadvise(int(f.Fd()), int64(at), int64(len(b)), unix.FADV_DONTNEED); err != nil {
			return fmt.Errorf("give up what is cached of %s: %w", f.Name(), err)
		}
	}
	_, err = f.ReadAt(b, int64(at))
	return err
}
