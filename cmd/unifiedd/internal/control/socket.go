package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/newfile"
)

// listenUnix listens on the control socket, which only its owner may use. It replaces a socket that
// a dead daemon left. It refuses a socket that answers, and any file that is not a socket.
func listenUnix(path string) (net.Listener, error) {
	dir, name, err := newfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w (does its directory exist, and may this user write there?)", err)
	}
	defer dir.Close()
	if err := removeDead(dir, name); err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	before := unix.Umask(0o177) // the socket must never exist with wider permissions
	l, err := net.Listen("unix", path)
	unix.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w (does its directory exist, and may this user write there?)", err)
	}
	return l, nil
}

// removeDead removes a socket without a listener.
func removeDead(dir *newfile.Dir, name string) error {
	is, err := dir.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case is.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return errors.New("there is something else of that name (choose another control.socket)")
	}
	c, err := net.DialTimeout("unix", dir.Path(name), time.Second)
	if err == nil {
		c.Close()
		return errors.New("another unifiedd answers there (stop it, or choose another control.socket)")
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("is another unifiedd there? %w (stop it, or choose another control.socket)", err)
	}
	return dir.Remove(name)
}
