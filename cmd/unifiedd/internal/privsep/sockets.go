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

// socket is a unix socket the daemon will have. Its directory is held open, since
// the daemon's user may own it: whatever they put in its place later, nothing
// outside of it can be removed.
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

// remove removes the socket, if it is one without a listener.
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

// alive reports whether somebody listens on the socket: another daemon, with the
// same configuration.
func alive(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return !errors.Is(err, unix.ECONNREFUSED)
}
