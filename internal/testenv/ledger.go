package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// undo has, for each kind of ledger entry, the function that undoes it after its process has died.
// The string is the entry's value.
var undo = map[string]func(string) error{
	"hugepages": undoPages,
	"netns":     netnsdir.Delete,
	"zram":      removeZram,
	"mount":     unmount,
}

// ledger lists the changes that this process has made to the machine and not undone. The process holds the
// file under flock while it has an entry. A ledger that can be locked belongs to a dead process.
type ledger struct {
	mu      sync.Mutex
	file    *os.File
	entries []string
}

var own ledger

// note records one change in the ledger, before or right after it is made. forget removes the
// entry. undo must know the kind.
func note(t testing.TB, kind, value string) (forget func()) {
	t.Helper()
	if undo[kind] == nil {
		t.Fatalf("ledger kind %q has no undo", kind)
	}
	entry := kind + " " + value
	Mustf(t, own.add(entry), "note %s in the test ledger", entry)
	return func() {
		Checkf(t, own.strike(entry), "strike %s out of the test ledger", entry)
	}
}

func (l *ledger) add(entry string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	l.entries = append(l.entries, entry)
	return l.write()
}

func (l *ledger) strike(entry string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.entries, entry)
	if i < 0 {
		return fmt.Errorf("no such entry")
	}
	l.entries = slices.Delete(l.entries, i, i+1)
	if len(l.entries) > 0 {
		return l.write()
	}
	err := errors.Join(os.Remove(l.file.Name()), l.file.Close())
	l.file = nil
	return err
}

// open makes this process's file and sweeps the files of dead processes. It does both under the
// machine-wide lock, so that no process sees the new file unlocked.
func (l *ledger) open() error {
	return locked(func(dir string) error {
		if err := sweep(dir); err != nil {
			fmt.Fprintf(os.Stderr, "testenv: clean up after a killed test: %v\n", err)
		}
		f, err := os.CreateTemp(dir, "ledger-")
		if err != nil {
			return err
		}
		l.file = f
		return flock(f, unix.LOCK_EX)
	})
}

func (l *ledger) write() error {
	text := []byte(strings.Join(l.entries, "\n") + "\n")
	if _, err := l.file.WriteAt(text, 0); err != nil {
		return err
	}
	return l.file.Truncate(int64(len(text)))
}

// ledgerDir is the directory of the ledgers. Like the changes, its file system does not survive a restart.
func ledgerDir() string {
	if dir := os.Getenv("TESTENV_LEDGERS"); dir != "" {
		return dir // set by tests of the ledger
	}
	return "/run/unifiedd-testenv"
}

// locked runs f while it holds the lock that all test processes of this machine share. dir is the
// directory of the ledgers.
func locked(f func(dir string) error) error {
	dir := ledgerDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(lock, unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return f(dir)
}

// flock repeats the call when a signal interrupts it. Go's own preemption is such a signal.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// sweep undoes the changes of dead test processes. The caller holds the lock.
func sweep(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "ledger-*"))
	for _, name := range names {
		err = errors.Join(err, sweepFile(name))
	}
	return err
}

func sweepFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil // its process has just removed it
	}
	defer f.Close()
	if flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // its process lives
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	left, err := undoAll(string(text))
	if len(left) == 0 {
		return errors.Join(err, os.Remove(name))
	}
	l := ledger{file: f, entries: left} // the next process tries again
	return errors.Join(err, l.write())
}

// undoAll undoes entries from last to first, because later ones may depend on earlier ones. It
// returns those that it could not undo.
func undoAll(text string) (left []string, err error) {
	var errs []error
	for _, entry := range slices.Backward(strings.Split(strings.TrimSpace(text), "\n")) {
		kind, value, _ := strings.Cut(entry, " ")
		if undo[kind] == nil {
			continue
		}
		if err := undo[kind](value); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("undo %s: %w", entry, err))
			left = append([]string{entry}, left...)
		}
	}
	return left, errors.Join(errs...)
}

// Sweep undoes the changes that killed test processes have left on the machine, and reports those
// that it cannot undo. It also gives back the huge pages of daemons that were killed with them, as
// the next daemon would. Tests need not call it: the first helper of a process sweeps.
func Sweep() error { return errors.Join(locked(sweep), hugetlb.Sweep()) }
