package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Directory has the files of a daemon's flows. Any goroutine may call its methods.
type Directory struct {
	path, version string
	events        uint32
	lock          *os.File // locked while the daemon lives

	mu    sync.Mutex
	flows map[string]*Recorder
}

// DirectoryOf returns the path of the directory of the daemon that has a control socket.
func DirectoryOf(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".trace" }

// Previous returns the path to which the files of the daemon before were moved.
func Previous(dir string) string { return dir + ".old" }

// Open makes a directory, and moves the files of the last daemon to [Previous]. events is how many rounds of each
// flow are kept, a power of two from [MinEvents] to [MaxEvents]. The caller closes the directory, which leaves the
// files.
func Open(path, version string, events uint32) (*Directory, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := inMemory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := retire(path); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	lock, err := lockDirectory(path)
	if err != nil {
		return nil, err
	}
	return &Directory{path: path, version: version, events: events, lock: lock, flows: make(map[string]*Recorder)}, nil
}

// ErrNotInMemory says that a directory is on a disk.
var ErrNotInMemory = errors.New("not in memory")

// inMemory returns an error for a directory whose file system is not in memory.
func inMemory(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("ask for the file system of %s: %w", dir, err)
	}
	if s.Type != unix.TMPFS_MAGIC && s.Type != unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is %w (put control.socket on a tmpfs, such as below /run, or set trace.directory)", dir, ErrNotInMemory)
	}
	return nil
}

// openOwn opens a directory of this process's user, which no other user may write. In a directory like /dev/shm any
// user could have made one of that name, or a link. Once it is ours, the sticky bit keeps others from replacing it.
func openOwn(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var s unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &s); err == nil && (s.Uid != uint32(os.Geteuid()) || s.Mode&0o022 != 0) {
		err = errors.New("it belongs to another user, or others may write it (remove it, or set trace.directory)")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), f.Close())
	}
	return f, nil
}

// lockDirectory locks a directory for this process. A reader may hold the lock for a moment.
func lockDirectory(path string) (*os.File, error) {
	f, err := openOwn(path)
	if err != nil {
		return nil, err
	}
	for range 20 {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w (another daemon writes it: give each its own control.socket)", path, err), f.Close())
	}
	return f, nil
}

// retire moves the directory of a daemon that has ended out of the way, and removes the one before.
func retire(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := lockDirectory(path)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := remove(Previous(path)); err != nil {
		return err
	}
	return os.Rename(path, Previous(path))
}

// remove removes a directory with the files of flows. One with other files is an error, and they stay.
func remove(dir string) error {
	own, err := openOwn(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer own.Close()
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

// Path returns the directory's path.
func (d *Directory) Path() string { return d.path }

// Recorder returns the recorder of a flow, the same one for the same name. A nil Directory has none.
func (d *Directory) Recorder(flow string) (*Recorder, error) {
	if d == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.flows[flow]; r != nil {
		return r, nil
	}
	path := filepath.Join(d.path, flow+Suffix)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a flow that a reload removed
		return nil, err
	}
	r, err := create(path, flow, d.version, d.events)
	if err != nil {
		return nil, fmt.Errorf("record flow %s: %w", flow, err)
	}
	d.flows[flow] = r
	return r, nil
}

// Keep closes the recorders of flows that are not in use any more. Their files stay.
func (d *Directory) Keep(use func(flow string) bool) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for name, r := range d.flows {
		if !use(name) {
			errs = append(errs, r.Close())
			delete(d.flows, name)
		}
	}
	return errors.Join(errs...)
}

// Close closes all recorders, and leaves the files. No worker may still poll a flow.
func (d *Directory) Close() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.Keep(func(string) bool { return false }), d.lock.Close())
}
