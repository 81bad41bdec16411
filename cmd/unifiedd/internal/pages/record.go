package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// place is what the names of records begin with. Tests have a place of their own.
var place = "/run/unifiedd-pages-"

// maxRecord bounds what is read of a record.
const maxRecord = 64 << 10

// record is the file of one Held, locked.
type record struct{ *os.File }

func newRecord() (*record, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(place), filepath.Base(place)+"*")
		if err != nil {
			return nil, fmt.Errorf("note it: %w", err)
		}
		r := &record{f}
		if r.lock() && r.current() { // else a sweep came first
			return r, nil
		}
		f.Close()
	}
}

// lock reports whether nobody else has the record.
func (r *record) lock() bool {
	for {
		if err := unix.Flock(int(r.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err == nil
		}
	}
}

// current reports whether the file is still the one of its name.
func (r *record) current() bool {
	a, err1 := r.Stat()
	b, err2 := os.Stat(r.Name())
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

func (r *record) write(all []umem.Raise) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if _, err := r.WriteAt(text, 0); err != nil {
		return fmt.Errorf("note it: %w", err)
	}
	return r.Truncate(int64(len(text)))
}

func (r *record) read() (all []umem.Raise, err error) {
	text, err := io.ReadAll(io.NewSectionReader(r, 0, maxRecord))
	if err != nil || len(text) == 0 { // killed before it wrote anything
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}

func (r *record) remove() error { return errors.Join(os.Remove(r.Name()), r.Close()) }

// Sweep gives back what killed processes have left. Who may not read their records
// leaves them alone.
func Sweep() error {
	names, err := filepath.Glob(place + "*")
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			continue
		}
		if err == nil {
			err = (&record{f}).sweep()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("give back the huge pages in %s: %w (see nr_hugepages, and remove the file)", name, err))
		}
	}
	return errors.Join(errs...)
}

// sweep takes back what is in a record, unless its process lives.
func (r *record) sweep() error {
	defer r.Close()
	if !r.lock() || !r.current() {
		return nil
	}
	all, err := r.read()
	if err != nil {
		return err
	}
	for len(all) > 0 {
		last := len(all) - 1
		if err := all[last].GiveBack(); err != nil {
			return err
		}
		all = all[:last]
		if err := r.write(all); err != nil { // once only, should this process be killed too
			return err
		}
	}
	return os.Remove(r.Name())
}
