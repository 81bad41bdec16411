package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/nvme"
)

// slotAlign is the alignment of records in the slot layout. A disk that needs a larger one cannot
// take consecutive records.
const slotAlign = 512

// place is a path that a flow writes to, or may write to.
type place struct {
	path    string
	dir     string // of a file: the nearest directory that exists
	flow    config.Flow
	hasFlow bool
	bad     State
}

// disk examines a block device, a directory, or the path a file will have.
func disk(path string, n needs) []Check {
	p := place{path: path, bad: Fail}
	p.flow, p.hasFlow = n.flowTo(path)
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		if info.Mode().Type() == os.ModeDevice {
			return append(p.device(), diskNode(path, n))
		}
		return []Check{fail("place", "%s is neither a file, a directory nor a block device", path)}
	}
	if p.dir, err = directory(path, info); err != nil {
		return []Check{fail("place", "%v", err)}
	}
	return append(p.file(), diskNode(p.dir, n))
}

// directory returns the innermost directory of a path that exists.
func directory(path string, info os.FileInfo) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for info == nil || !info.IsDir() {
		path = filepath.Dir(path)
		if info, err = os.Stat(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return path, nil
}

// file tries direct I/O with a file that never gets a name.
func (p place) file() []Check {
	checks := []Check{p.fileSystem()}
	fd, err := unix.Open(p.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return append(checks, unknown("direct I/O", "this file system cannot make a nameless file to try with"), p.room())
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return append(checks, fail("writable", "%s: %v", p.dir, err).with("give the directory to the user the daemon runs as"), p.room())
	case err != nil:
		return append(checks, fail("writable", "make a file in %s: %v", p.dir, err), p.room())
	}
	defer unix.Close(fd)
	return append(append(checks, p.direct(fmt.Sprintf("/proc/self/fd/%d", fd))...), p.room())
}

// direct opens the target as the daemon does and reads its alignment.
func (p place) direct(path string) []Check {
	t, err := nvme.OpenTarget(nvme.TargetConfig{Path: path})
	switch {
	case errors.Is(err, nvme.ErrNoDirectIO):
		return []Check{ok("direct I/O", "this file system has none: the kernel would copy every byte").as(p.bad).with("use a path on a disk's file system, such as ext4 or XFS")}
	case err != nil:
		return []Check{fail("direct I/O", "%v", err)}
	}
	defer t.Close()
	return p.aligned(t.Alignment())
}

// aligned checks the alignment that direct I/O requires.
func (p place) aligned(a nvme.Alignment) []Check {
	checks := []Check{ok("direct I/O", "alignment: %v", a)}
	switch wants := p.hasFlow && p.flow.To.Layout == config.LayoutSlot; {
	case a.Offset <= slotAlign && a.Memory <= slotAlign:
		return append(checks, ok("slot layout", "possible"))
	case wants:
		return append(checks, fail("slot layout", "flow %s wants it, and records of %d bytes do not fit this alignment", p.flow.Name, slotAlign).
			with("set layout: packed"))
	}
	return append(checks, ok("slot layout", "not here; the packed layout is possible"))
}

// room compares the free space with a segment.
func (p place) room() Check {
	const name = "free space"
	var fs unix.Statfs_t
	if err := unix.Statfs(p.dir, &fs); err != nil {
		return unknown(name, "%v", err)
	}
	free, disk := fs.Bavail*uint64(fs.Bsize), fs.Blocks*uint64(fs.Bsize)
	keep := p.flow.To.KeepFree.Of(disk)
	if p.hasFlow && keep > free {
		return fail(name, "%s, and keep_free leaves %s free: the flow waits until there is more", mebibytes(free), mebibytes(keep)).
			with("free space, or lower keep_free")
	}
	if most := uint64(p.flow.To.Segment.Keep.Space(p.flow.To.Segment.Size)); p.hasFlow && most > disk-min(disk, keep) {
		return warn(name, "segment.keep lets the flow take %s with the prepared segment, and of the disk's %s keep_free leaves %s free", mebibytes(most), mebibytes(disk), mebibytes(keep)).
			with("lower segment.keep or segment.size: when the disk is full, the flow waits")
	}
	segment := uint64(config.NewFlow("").To.Segment.Size)
	if p.hasFlow {
		segment = uint64(p.flow.To.Segment.Size)
	}
	if free < segment {
		return warn(name, "%s, less than one segment of %s", mebibytes(free), mebibytes(segment)).
			with("free space, or lower segment.size")
	}
	return ok(name, "%s, one segment takes %s", mebibytes(free), mebibytes(segment))
}

// fileSystem names the file system of the directory.
func (p place) fileSystem() Check {
	const name = "file system"
	m, found := mountOf(p.dir)
	if !found {
		return unknown(name, "no mount found for %s", p.dir)
	}
	detail := fmt.Sprintf("%s on %s, mounted at %s", m.kind, m.source, m.point)
	missing := p.dir != p.path && p.dir != filepath.Dir(p.path)
	if missing {
		detail += fmt.Sprintf(" (%s does not exist)", filepath.Dir(p.path))
	}
	switch {
	case m.readOnly:
		return fail(name, "%s, read-only", detail).with("mount -o remount,rw %s", m.point)
	case missing && p.hasFlow && !p.flow.To.Create:
		return fail(name, "%s", detail).with("mount the disk, create the directory, or set to.create: true")
	}
	return ok(name, "%s%s", detail, blocks(m.device))
}
