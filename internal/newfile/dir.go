// Package newfile makes, renames and removes files for a process with more rights than the owner of
// their directory.
//
// A user with write access to a directory can put a link at the path of a file that is about to be
// made, and can replace the directory itself by a link between two calls. So a [Dir] is opened
// once, and all calls use names relative to it. Create makes a file only if the name does not
// exist, and no call follows links. [Replace] makes a file that gets its name when it is complete:
// until then an existing file stays unchanged, and a killed process leaves nothing.
package newfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dir is an open directory. Any goroutine may call its methods except Close. Names are of files directly in
// the directory.
type Dir struct {
	fd   int
	path string
}

// OpenDir opens a directory by its path. The caller closes it.
func OpenDir(path string) (*Dir, error) {
	fd, err := openat(unix.AT_FDCWD, filepath.Clean(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open directory", Path: path, Err: err}
	}
	return &Dir{fd, path}, nil
}

// Below opens a directory in the directory by a path that others choose. The path cannot lead out of the directory, and
// no part of it may be a link. The caller closes the result.
func (d *Dir) Below(path string) (*Dir, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(d.fd, path, &how)
		if err == unix.EINTR || err == unix.EAGAIN { // something was renamed meanwhile
			continue
		}
		if err != nil {
			return nil, d.error("open directory", path, err)
		}
		return &Dir{fd, filepath.Join(d.path, path)}, nil
	}
}

// Open opens the directory of a path, and returns the name of the path in it.
func Open(path string) (d *Dir, name string, err error) {
	d, err = OpenDir(filepath.Dir(path))
	return d, filepath.Base(path), err
}

// Close closes the directory.
func (d *Dir) Close() error { return unix.Close(d.fd) }

// Path returns a path of a file in the directory for calls that accept only a path. The path refers to the
// open directory and is valid while that is open.
func (d *Dir) Path(name string) string {
	return "/proc/self/fd/" + strconv.Itoa(d.fd) + "/" + name
}

// Create makes a file if the name does not exist.
func (d *Dir) Create(name string, perm os.FileMode) (*os.File, error) {
	return d.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, perm)
}

// OpenFile opens an existing file, with flags of open(2). It refuses a link.
func (d *Dir) OpenFile(name string, flags int) (*os.File, error) { return d.open(name, flags, 0) }

func (d *Dir) open(name string, flags int, perm os.FileMode) (*os.File, error) {
	fd, err := openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_NOCTTY, perm)
	if err != nil {
		return nil, d.error("open", name, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.path, name)), nil
}

// Mkdir makes a directory if the name does not exist, and opens it. It refuses to open a link.
func (d *Dir) Mkdir(name string, perm os.FileMode) (*os.File, error) {
	if err := unix.Mkdirat(d.fd, name, uint32(perm.Perm())); err != nil {
		return nil, d.error("make directory", name, err)
	}
	return d.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// Rename renames a file, and replaces a file that has the new name.
func (d *Dir) Rename(from, to string) error {
	return d.error("rename", from, unix.Renameat(d.fd, from, d.fd, to))
}

// Remove removes a file, or the link that has its name.
func (d *Dir) Remove(name string) error { return d.error("remove", name, unix.Unlinkat(d.fd, name, 0)) }

// Stat describes a file; for a link, the link itself.
func (d *Dir) Stat(name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, d.error("look at", name, err)
}

// Sync makes the names in the directory durable.
func (d *Dir) Sync() error {
	fd, err := openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return d.error("open", ".", err)
	}
	err = unix.Fsync(fd)
	_ = unix.Close(fd) // nothing was written by it
	return d.error("flush", ".", err)
}

func (d *Dir) error(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: filepath.Join(d.path, name), Err: err}
}

// openat repeats the call if a signal interrupts it.
func openat(dir int, name string, flags int, perm os.FileMode) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, uint32(perm.Perm()))
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// Regular returns an error if the file exists and is not regular.
func (d *Dir) Regular(name string) error {
	st, err := d.Stat(name)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is there already and not a regular file: choose another name", filepath.Join(d.path, name))
	}
	return nil
}
