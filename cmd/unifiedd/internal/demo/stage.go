package demo

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// stage has everything that the demo makes on the machine. The demo removes it in reverse order.
type stage struct {
	Options
	record *record
	dir    string
	a, b   *namespace // sender, receiver

	hub      *namespace   // has the switch of the group
	switched []*namespace // the group's members and their client, each with a port of the switch
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
	if s.a, err = s.makeNamespace("send"); err != nil {
		return err
	}
	if s.b, err = s.makeNamespace("capture"); err != nil {
		return err
	}
	return join(s.a, s.b)
}

// makeNamespace makes a namespace, and records it first.
func (s *stage) makeNamespace(name string) (*namespace, error) {
	name = fmt.Sprintf("unifiedd-demo-%d-%s", os.Getpid(), name)
	if err := s.record.add("netns", name); err != nil {
		return nil, err
	}
	return newNamespace(name)
}

// makeSwitch makes n namespaces with an interface each, and a switch between them.
func (s *stage) makeSwitch(n int) (err error) {
	if s.hub, err = s.makeNamespace("switch"); err != nil {
		return err
	}
	bridge, err := s.hub.addBridge()
	if err != nil {
		return err
	}
	for i := range n {
		end, err := s.makeNamespace(fmt.Sprintf("group-%d", i+1))
		if err != nil {
			return err
		}
		s.switched = append(s.switched, end)
		if err := s.hub.plug(bridge, end, byte(i+1)); err != nil {
			return err
		}
	}
	return nil
}

// namespaces returns those that exist, the newest first.
func (s *stage) namespaces() (all []*namespace) {
	for _, n := range append([]*namespace{s.a, s.b, s.hub}, s.switched...) {
		if n != nil {
			all = append(all, n)
		}
	}
	slices.Reverse(all)
	return all
}

// clear removes everything, and then checks that nothing is left.
func (s *stage) clear() error {
	var errs []error
	if s.a != nil {
		for _, w := range wires {
			errs = append(errs, s.a.unlink(w))
		}
	}
	for _, n := range s.switched {
		errs = append(errs, n.unlink(switched))
	}
	for _, n := range s.namespaces() {
		errs = append(errs, n.close())
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
	for _, n := range s.namespaces() {
		if exists(netnsdir.Path(n.name)) {
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
