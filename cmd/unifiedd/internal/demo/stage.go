package demo

import (
	"errors"
	"fmt"
	"os"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// stage has everything that the demo makes on the machine. The demo removes it in reverse order.
type stage struct {
	Options
	record *record
	dir    string
	a, b   *namespace // sender, receiver
}

// regionSize is the size of the region of the demo's captures.
const regionSize = 128 * config.MiB

// set makes directory and namespaces. After an error, clear removes those that exist.
func (s *stage) set() error {
	if err := s.makeDir(); err != nil {
		return err
	}
	return s.makeNamespaces()
}

func (s *stage) makeDir() (err error) {
	if s.dir, err = os.MkdirTemp(s.Dir, "unifiedd-demo-"); err != nil {
		return fmt.Errorf("make a directory for the captures: %w (choose another with --dir)", err)
	}
	if s.Keep {
		return nil
	}
	return s.record.add("dir", s.dir)
}

func (s *stage) makeNamespaces() (err error) {
	for _, end := range []struct {
		to   **namespace
		name string
	}{{&s.a, "send"}, {&s.b, "capture"}} {
		name := fmt.Sprintf("unifiedd-demo-%d-%s", os.Getpid(), end.name)
		if err := s.record.add("netns", name); err != nil {
			return err
		}
		if *end.to, err = newNamespace(name); err != nil {
			return err
		}
	}
	return join(s.a, s.b)
}

// clear removes everything, and then checks that nothing is left.
func (s *stage) clear() error {
	var errs []error
	if s.a != nil {
		for _, w := range wires {
			errs = append(errs, s.a.unlink(w))
		}
	}
	for _, n := range []*namespace{s.b, s.a} {
		if n != nil {
			errs = append(errs, n.close())
		}
	}
	if !s.Keep && s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	errs = append(errs, s.leftovers()...)
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, s.record.file.Close()) // the next demo tries again
	}
	return s.record.close()
}

// leftovers names everything that was not removed.
func (s *stage) leftovers() (errs []error) {
	for _, n := range []*namespace{s.a, s.b} {
		if n != nil && exists(netnsdir.Path(n.name)) {
			errs = append(errs, fmt.Errorf("network namespace %s was not removed", n.name))
		}
	}
	if !s.Keep && s.dir != "" && exists(s.dir) {
		errs = append(errs, fmt.Errorf("directory %s was not removed", s.dir))
	}
	return errs
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}
