// Package record keeps files in which a process lists the resources that it must give back. A
// process locks its file as long as it lives, so that a later process can find the files of killed
// ones.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// most is the most bytes of a record that are read.
const most = 1 << 20

// File is one locked record. Close unlocks it and leaves the file in place.
type File struct{ *os.File }

// New makes an empty record whose path begins with place.
func New(place string) (*File, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(place), filepath.Base(place)+"*")
		if err != nil {
			return nil, err
		}
		r := &File{f}
		if r.lock() && r.current() { // else a sweep came first
			return r, nil
		}
		f.Close()
	}
}

// lock locks the record, and reports whether no other process has it locked.
func (r *File) lock() bool {
	for {
		if err := unix.Flock(int(r.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err == nil
		}
	}
}

// current reports whether the file still has its name.
func (r *File) current() bool {
	a, err1 := r.Stat()
	b, err2 := os.Lstat(r.Name())
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// Put writes what in place of the earlier contents. If the process is killed during the call, the record has
// either the old or the new contents: a write(2) of up to a page is not interrupted, and Get reads only the
// first value.
func (r *File) Put(what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if _, err := r.WriteAt(text, 0); err != nil {
		return err
	}
	return r.Truncate(int64(len(text)))
}

// Get reads the contents, and reports whether there are any: a process may be killed before it
// writes.
func (r *File) Get(what any) (noted bool, err error) {
	err = json.NewDecoder(io.NewSectionReader(r, 0, most)).Decode(what)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

// Remove deletes the record and closes it.
func (r *File) Remove() error { return errors.Join(os.Remove(r.Name()), r.Close()) }

// Sweep calls give for each record at place whose process has ended. If give returns done, Sweep removes the
// record. It leaves alone the records that this process may not read. Errors name the file.
func Sweep(place string, give func(*File) (done bool, err error)) error {
	names, err := filepath.Glob(place + "*")
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			continue
		}
		if err == nil {
			err = (&File{f}).sweep(give)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w (remove the file once that is seen to)", name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *File) sweep(give func(*File) (bool, error)) error {
	defer r.Close()
	if !r.lock() || !r.current() {
		return nil
	}
	done, err := give(r)
	if err != nil || !done {
		return err
	}
	return os.Remove(r.Name())
}
