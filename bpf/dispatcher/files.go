package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// rootVariable names another place for the BPF file system than defaultRoot, as it does to libxdp.
const (
	rootVariable = "LIBXDP_BPFFS"
	defaultRoot  = "/sys/fs/bpf"
)

// patience is how long somebody else may keep the directory locked.
const patience = 5 * time.Second

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
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.dir, err)
		case time.Now().After(end):
			return fmt.Errorf("lock %s: %w for %v (see who: fuser -v %s)", f.dir, ErrLocked, patience, f.dir)
		}
	}
}

// close gives the lock back.
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
