package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// recordFile is the file in which a running demo records the things it has made.
var recordFile = "/run/unifiedd-demo"

// record is the locked file. Every line is a kind and a value.
type record struct {
	file    *os.File
	entries []string
}

// undo has the functions that remove one thing of a killed demo, by kind.
var undo = map[string]func(string) error{
	"netns": netnsdir.Delete,
	"dir":   os.RemoveAll,
}

// openRecord waits until no other demo runs and removes everything that a killed one left.
func openRecord(ctx context.Context, out io.Writer) (*record, error) {
	said := false
	for {
		r, err := lockRecord()
		if err != nil {
			return nil, fmt.Errorf("note what the demo makes in %s: %w", recordFile, err)
		}
		if r != nil {
			return r, r.sweep(out)
		}
		if !said {
			fmt.Fprintln(out, "waiting for another demo to end")
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("interrupted while another demo ran")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// lockRecord opens the record and locks it; nil if another demo has it.
func lockRecord() (*record, error) {
	f, err := os.OpenFile(recordFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil || !current(f) {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return nil, err
	}
	return &record{file: f}, nil
}

func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err
		}
	}
}

// current reports whether the file still has that name: a demo that ended removed its own record.
func current(f *os.File) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(recordFile)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// sweep removes the things in the record of a killed demo, last first.
func (r *record) sweep(out io.Writer) error {
	text, err := io.ReadAll(io.LimitReader(r.file, 64<<10))
	if err != nil {
		return errors.Join(err, r.close())
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var errs []error
	for i := len(lines) - 1; i >= 0; i-- {
		kind, value, _ := strings.Cut(lines[i], " ")
		if undo[kind] == nil {
			continue
		}
		fmt.Fprintf(out, "taking back what a killed demo left: %s\n", lines[i])
		if err := undo[kind](value); err != nil {
			errs = append(errs, fmt.Errorf("take back %s of a killed demo: %w", lines[i], err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, r.file.Close())
	}
	return r.write()
}

// add records something that the demo makes.
func (r *record) add(kind, value string) error {
	r.entries = append(r.entries, kind+" "+value)
	if err := r.write(); err != nil {
		return fmt.Errorf("note %s in %s: %w", kind, recordFile, err)
	}
	return nil
}

func (r *record) write() error {
	text := []byte(strings.Join(r.entries, "\n"))
	if _, err := r.file.WriteAt(text, 0); err != nil {
		return err
	}
	return r.file.Truncate(int64(len(text)))
}

// close removes the record. Nothing may be left.
func (r *record) close() error {
	return errors.Join(os.Remove(recordFile), r.file.Close())
}
