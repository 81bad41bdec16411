package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Store is the cache directory.
type Store struct {
	dir string
	// Log gets a line for each slow step.
	Log io.Writer
	// Refresh makes the store fetch things again that it has.
	Refresh bool
}

// OpenStore opens the user's store, and makes it if it does not exist: lab below unifiedd in
// $XDG_CACHE_HOME, or in ~/.cache.
func OpenStore(log io.Writer) (*Store, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache directory: %w", err)
	}
	return openStoreAt(filepath.Join(base, "unifiedd", "lab"), log)
}

// openStoreAt opens a store in a directory.
func openStoreAt(dir string, log io.Writer) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache directory: %w", err)
	}
	return &Store{dir: dir, Log: log}, nil
}

// get returns the directory of that name in the store. If it is missing, make fills it. Only one
// process at a time makes anything. make gets a directory for the contents and one for temporary
// files, both empty.
func (s *Store) get(ctx context.Context, name string, make func(ctx context.Context, into, scratch string) error) (string, error) {
	path := filepath.Join(s.dir, name)
	if isDir(path) && !s.Refresh {
		return path, nil
	}
	unlock, err := s.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(path) && !s.Refresh {
		return path, nil
	}
	return path, s.make(ctx, path, make)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lock waits until no other process makes anything in the store.
func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache directory: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the cache directory: %w", err)
	}
	return func() { f.Close() }, nil
}

// make runs under the lock, so no process still uses unfinished files.
func (s *Store) make(ctx context.Context, path string, fill func(ctx context.Context, into, scratch string) error) error {
	work := filepath.Join(s.dir, "unfinished")
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("clear the cache directory: %w", err)
	}
	defer os.RemoveAll(work)
	into, scratch, old := filepath.Join(work, "into"), filepath.Join(work, "scratch"), filepath.Join(work, "old")
	for _, dir := range []string{into, scratch} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a directory in the cache: %w", err)
		}
	}
	if err := fill(ctx, into, scratch); err != nil {
		return err
	}
	if err := os.Rename(path, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace what is in the cache: %w", err)
	}
	if err := os.Rename(into, path); err != nil {
		return fmt.Errorf("put into the cache: %w", err)
	}
	return nil
}

func (s *Store) say(format string, args ...any) {
	fmt.Fprintf(s.Log, "lab: "+format+"\n", args...)
}
