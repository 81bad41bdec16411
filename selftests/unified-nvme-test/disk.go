package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// otherPath is where read(2) finds the target's bytes: of an NVMe node, which takes
// commands only, in the block device of the same disk.
func (t *tester) otherPath() string {
	if t.target.Passthrough() {
		return blockOf(t.target.Path())
	}
	return t.target.Path()
}

// blockOf is the block device of an NVMe node's disk: /dev/nvme0n1 of /dev/ng0n1.
func blockOf(node string) string {
	if real, err := filepath.EvalSymlinks(node); err == nil {
		node = real
	}
	return filepath.Join("/dev", "nvme"+strings.TrimPrefix(filepath.Base(node), "ng"))
}

// through says where read(2) looks, if that is not the target.
func (t *tester) through() string {
	if t.target.Passthrough() {
		return " in " + t.otherPath()
	}
	return ""
}

// readDisk reads the target the ordinary way. What the kernel has cached of a node's disk
// knows nothing of commands to the node, and is given up first.
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
