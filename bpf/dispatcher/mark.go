package dispatcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// markName is the pattern of names of marks; libxdp looks at names that begin with dispatch- only.
const markName = "unifiedd-%d"

// mark says that a program is of this process, as long as that lives: a directory, locked.
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

// close removes the mark; that of no program does nothing.
func (m *mark) close() error {
	if m == nil {
		return nil
	}
	return errors.Join(os.Remove(m.path), unix.Close(m.fd))
}

// abandon leaves the mark to whoever finds it: the program is dead from here on.
func (m *mark) abandon() error {
	if m == nil {
		return nil
	}
	return unix.Close(m.fd)
}

// dead reports whether the program is one of ours, and its process gone.
func (f *files) dead(id ebpf.ProgramID) bool {
	fd, err := lockMark(f.markPath(id))
	if err != nil {
		return false // it has no mark, or a process
	}
	_ = unix.Close(fd)
	return true
}

// removeStale removes the marks of programs that are no more.
func (f *files) removeStale() {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return // what is left costs nothing
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
