package capture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// receiver is a running contestant.
type receiver struct {
	of    contestant
	dir   string
	cmd   *exec.Cmd
	said  said
	ended chan error
}

// said collects the output of a program, and signals when a text appears in it.
type said struct {
	mu    sync.Mutex
	text  bytes.Buffer
	until string
	heard chan struct{}
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	if s.until != "" && bytes.Contains(s.text.Bytes(), []byte(s.until)) {
		s.until = ""
		close(s.heard)
	}
	return len(b), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(s.text.String())
}

// launch starts a contestant on an interface, and waits until packets reach it. command adds everything
// except the program and its arguments.
func launch(c contestant, iface, dir string, command func(name string, args ...string) *exec.Cmd) (*receiver, error) {
	words, err := c.command(iface, dir)
	if err != nil {
		return nil, err
	}
	r := &receiver{of: c, dir: dir, cmd: command(words[0], words[1:]...), ended: make(chan error, 1)}
	r.said.until, r.said.heard = c.ready, make(chan struct{})
	r.cmd.Stdout, r.cmd.Stderr = &r.said, &r.said
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { r.ended <- r.cmd.Wait() }()
	select {
	case <-r.said.heard:
		return r, nil
	case err = <-r.ended:
		r.ended <- err
		err = fmt.Errorf("%s ended before it received: %w: %s", c.name, err, &r.said)
	case <-time.After(30 * time.Second):
		err = fmt.Errorf("%s does not say %q", c.name, c.ready)
	}
	return nil, errors.Join(err, r.end())
}

// end asks the program to end, and flushes its files to stable storage.
func (r *receiver) end() error {
	with := os.Interrupt
	if r.of.kill {
		with = os.Kill
	}
	_ = r.cmd.Process.Signal(with) // it may have ended already
	select {
	case err := <-r.ended:
		if err != nil && !r.of.kill {
			return fmt.Errorf("%s: %w: %s", r.of.name, err, &r.said)
		}
	case <-time.After(60 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.ended
		return fmt.Errorf("%s does not end: %s", r.of.name, &r.said)
	}
	files, err := filepath.Glob(filepath.Join(r.dir, r.of.files))
	for _, name := range files {
		err = errors.Join(err, syncFile(name))
	}
	return err
}

// found reads the receiver's files.
func (r *receiver) found(sent int) (*seen, error) {
	s := newSeen(sent)
	err := s.read(filepath.Join(r.dir, r.of.files), r.of.format)
	if err != nil {
		err = fmt.Errorf("%s: %w", r.of.name, err)
	}
	return s, err
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
