package privsep

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// socket is a unix socket that the daemon will make. The parent process holds its directory open,
// because the daemon's user may own it. If that user replaces the directory, remove still cannot
// delete anything outside of it.
type socket struct {
	path string
	dir  *os.Root
}

func openSocket(path string) (socket, error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return socket{}, fmt.Errorf("open the directory of socket %s: %w", path, err)
	}
	return socket{path, dir}, nil
}

// remove removes the socket if it has no listener.
func (s socket) remove() error {
	defer s.dir.Close()
	name := filepath.Base(s.path)
	info, err := s.dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil
	}
	if err == nil && alive(s.path) {
		return nil
	}
	if err == nil {
		err = s.dir.Remove(name)
	}
	if err != nil {
		return fmt.Errorf("remove socket %s: %w", s.path, err)
	}
	return nil
}

// alive reports whether a process listens on the socket: another daemon with the same configuration.
func alive(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return !errors.Is(err, unix.ECONNREFUSED)
}
