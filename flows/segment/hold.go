package segment

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
)

// ErrInUse says that another process writes a file: its capture must neither be
// mended nor replaced.
var ErrInUse = errors.New("another process writes it")

// letGo is how long the kernel may take to close the files of a process that was
// killed: those of an io_uring outlive it a while. Tests shorten it.
var lockTimeout = 5 * time.Second

// hold locks an open file for as long as it is open, so that no other unifiedd
// mends or replaces it meanwhile. A file system without locks has none.
func lockFile(fd int) error {
	for end := time.Now().Add(lockTimeout); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w (stop it, or choose another place)", ErrInUse)
		}
	}
}

// reopen opens the file of a segment once more, without direct I/O.
func (s *Segment) reopenBuffered() (*os.File, error) { return reopenBuffered(s.Target) }

// reopen opens a target once more, without direct I/O; instead of an NVMe node, its
// block device. It goes by what is open and not by the name, under which there may be
// another file by now.
func reopenBuffered(t *nvme.Target) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", t.BlockFD()), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s again: %w", t.Path(), err)
	}
	return os.NewFile(uintptr(fd), t.Path()), nil
}

// writeHead writes what a segment begins with and waits until it is durable.
func (s *Segment) writeHead(head []byte) error {
	f, err := s.reopenBuffered()
	if err != nil {
		return err
	}
	_, err = f.WriteAt(head, int64(s.Base))
	return errors.Join(err, f.Sync(), f.Close())
}

// removed reports whether a file has no name any more.
func isRemoved(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
