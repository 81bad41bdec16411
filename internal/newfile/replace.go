package newfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// File is a file that gets its name when it is complete. Commit or Discard closes it.
type File struct {
	*os.File
	dir  *Dir
	name string
	made string // its temporary name; empty: none
}

// Replace begins a file that will have this path. An existing file must be regular, and its
// permissions are kept; otherwise they are perm.
func Replace(path string, perm os.FileMode) (*File, error) {
	d, name, err := Open(path)
	if err != nil {
		return nil, err
	}
	f, err := d.Replace(name, perm)
	return f, errors.Join(err, d.Close())
}

// Replace is the function Replace for a file in the directory. The caller may close the directory before the
// file.
func (d *Dir) Replace(name string, perm os.FileMode) (*File, error) {
	own, err := openat(d.fd, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, d.error("open", ".", err)
	}
	f := &File{dir: &Dir{own, d.path}, name: name}
	if err := f.begin(perm); err != nil {
		return nil, errors.Join(err, f.dir.Close())
	}
	return f, nil
}

func (f *File) begin(perm os.FileMode) error {
	if err := f.dir.Regular(f.name); err != nil {
		return err
	}
	fd, err := openat(f.dir.fd, ".", unix.O_TMPFILE|unix.O_RDWR, perm)
	switch {
	case err == nil:
		f.File = os.NewFile(uintptr(fd), f.dir.path+"/"+f.name)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR): // a file system without files that have no name
		f.made = f.hidden()
		if f.File, err = f.dir.Create(f.made, perm); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w (a new file replaces the old one when it is complete: the directory must be writable)", f.dir.error("make a file for", f.name, err))
	}
	if old, err := f.dir.Stat(f.name); err == nil {
		if err := f.Chmod(os.FileMode(old.Mode & 0o777)); err != nil {
			return errors.Join(err, f.discard())
		}
	}
	return nil
}

// hidden returns an unpredictable name, of at most 255 bytes.
func (f *File) hidden() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	tail := "-" + hex.EncodeToString(b[:]) + ".new"
	return "." + strings.ToValidUTF8(f.name[:min(len(f.name), unix.NAME_MAX-1-len(tail))], "") + tail
}

// Commit makes the file durable, gives it its name, replaces an existing file, and closes it. After an error
// the file no longer exists.
func (f *File) Commit() error {
	err := f.Sync()
	if err == nil && f.made == "" {
		made := f.hidden()
		from := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		if err = f.dir.error("link", made, unix.Linkat(unix.AT_FDCWD, from, f.dir.fd, made, unix.AT_SYMLINK_FOLLOW)); err == nil {
			f.made = made
		}
	}
	if err == nil {
		err = f.dir.Regular(f.name)
	}
	if err == nil {
		if err = f.dir.Rename(f.made, f.name); err == nil {
			f.made = ""
			err = f.dir.Sync()
		}
	}
	return errors.Join(err, f.discard())
}

// Discard drops the file. An existing file of that name stays unchanged.
func (f *File) Discard() error { return f.discard() }

func (f *File) discard() error {
	err := f.Close()
	if f.made != "" {
		err = errors.Join(err, f.dir.Remove(f.made))
	}
	return errors.Join(err, f.dir.Close())
}
