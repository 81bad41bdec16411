package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// rootVariable is the environment variable that overrides defaultRoot, the place of the BPF file
// system. libxdp reads the same variable.
const (
	rootVariable = "LIBXDP_BPFFS"
	defaultRoot  = "/sys/fs/bpf"
)

// lockTimeout is how long to wait for the lock of the directory.
const lockTimeout = 5 * time.Second

// files is libxdp's directory in the BPF file system, locked.
type files struct {
	dir string
	fd  int
}

// openFiles finds the directory, and locks it. The caller closes it.
func openFiles() (*files, error) {
	root := cmp.Or(os.Getenv(rootVariable), defaultRoot)
	var s unix.Statfs_t
	err := unix.Statfs(root, &s)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fileError("look at "+root, err)
	}
	if err != nil || s.Type != unix.BPF_FS_MAGIC {
		return nil, fmt.Errorf("%w at %s, where libxdp pins programs (mount -t bpf bpf %s; ip netns exec hides the one that is mounted: nsenter --net= does not)", ErrNoFiles, root, root)
	}
	f := &files{dir: filepath.Join(root, "xdp")}
	err = os.Mkdir(f.dir, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		f.fd, err = unix.Open(f.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fileError("open "+f.dir, err)
	}
	if err := f.lock(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *files) lock() error {
	for end := time.Now().Add(lockTimeout); ; time.Sleep(time.Millisecond) {
		err := unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.dir, err)
		case time.Now().After(end):
			return fmt.Errorf("lock %s: %w for %v (see who: fuser -v %s)", f.dir, ErrLocked, lockTimeout, f.dir)
		}
	}
}

// close releases the lock.
func (f *files) close() error { return unix.Close(f.fd) }

// fileError adds a remedy to an error of a file.
func fileError(step string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: %w (%s)", step, ErrPermission, err, capabilities)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s: %w (the service must not have ProtectKernelTunables=, which makes it read-only)", step, err)
	}
	return fmt.Errorf("%s: %w", step, err)
}

// markName is the pattern of the names of marks. libxdp considers only names that begin with
// dispatch-.
const markName = "unifiedd-%d"

// mark is a locked directory. It says that a program belongs to this process as long as the process
// lives.
type mark struct {
	path string
	fd   int
}

func (f *files) markPath(id ebpf.ProgramID) string {
	return filepath.Join(f.dir, fmt.Sprintf(markName, id))
}

// mark marks a program. The caller closes the mark.
func (f *files) mark(id ebpf.ProgramID) (*mark, error) {
	m := &mark{path: f.markPath(id)}
	err := os.Mkdir(m.path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = nil // of a program that had the number before
	}
	if err == nil {
		m.fd, err = lockMark(m.path)
	}
	if err != nil {
		return nil, fileError("mark program "+m.path, err)
	}
	return m, nil
}

func lockMark(path string) (fd int, err error) {
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// close removes the mark. On a nil mark it does nothing.
func (m *mark) close() error {
	if m == nil {
		return nil
	}
	return errors.Join(os.Remove(m.path), unix.Close(m.fd))
}

// abandon unlocks the mark and leaves the directory. From then on the program counts as dead.
func (m *mark) abandon() error {
	if m == nil {
		return nil
	}
	return unix.Close(m.fd)
}

// dead reports whether the program is one of ours whose process has ended.
func (f *files) dead(id ebpf.ProgramID) bool {
	fd, err := lockMark(f.markPath(id))
	if err != nil {
		return false // it has no mark, or a process
	}
	_ = unix.Close(fd)
	return true
}

// removeStale removes the marks of programs that no longer exist.
func (f *files) removeStale() {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return // stale marks cost nothing
	}
	for _, e := range entries {
		var id ebpf.ProgramID
		if _, err := fmt.Sscanf(e.Name(), markName, &id); err != nil || !f.dead(id) {
			continue
		}
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(f.markPath(id))
		}
		_ = p.Close()
	}
}

// Sweep removes the programs of dead processes from the dispatchers in the network namespace of the calling
// thread. The next Join there would do the same; Sweep is for a process that outlives one of ours. Without a
// BPF file system or such a program it does nothing.
func Sweep() error {
	err := locked(func(f *files) error {
		f.removeStale()
		found, err := filepath.Glob(filepath.Join(f.dir, "dispatch-*-*"))
		for _, dir := range found {
			err = errors.Join(err, f.removeStaleFiles(filepath.Base(dir)))
		}
		return err
	})
	if errors.Is(err, ErrNoFiles) {
		return nil
	}
	return err
}

// removeStaleFiles removes dead programs from the dispatcher with the directory of that name, if it is on an
// interface.
func (f *files) removeStaleFiles(name string) error {
	var ifindex int
	var id ebpf.ProgramID
	if _, err := fmt.Sscanf(name, "dispatch-%d-%d", &ifindex, &id); err != nil || !f.hasDead(name) {
		return nil
	}
	i, err := Find(ifindex)
	if err != nil || i == nil {
		return nil // it is in another namespace, or no longer exists
	}
	defer i.Close()
	if on, err := i.look(); err != nil || on.id != id {
		return nil
	}
	_, err = i.exchange(f, 0, nil)
	return i.about(err)
}

// hasDead reports whether a dead program is pinned in the directory of that name.
func (f *files) hasDead(name string) bool {
	for n := range Most {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(f.dir, name, functionName(n)+"-prog"), nil)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		if err != nil {
			continue
		}
		m, err := newMember(p, Settings{})
		_ = p.Close()
		if err == nil && f.dead(m.id) {
			return true
		}
	}
	return false
}
