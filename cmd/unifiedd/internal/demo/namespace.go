package demo

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/unifiedd/unifiedd/internal/netnsdir"
	"github.com/unifiedd/unifiedd/internal/osthread"
)

// namespace is a network namespace with one end of each wire in it.
type namespace struct {
	name string
	ns   netns.NsHandle
}

// newNamespace makes an empty namespace that ip(8) also finds.
func newNamespace(name string) (*namespace, error) {
	n := &namespace{name: name, ns: netns.None()}
	err := onThread(netns.None(), func() (err error) {
		n.ns, err = netnsdir.New(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w", name, err)
	}
	return n, nil
}

// do runs f on a thread that is in the namespace.
func (n *namespace) do(f func() error) error { return onThread(n.ns, f) }

// inNamespace runs f on a thread in the namespace with that path; empty: the namespace of the
// process.
func inNamespace(path string, f func() error) (err error) {
	ns := netns.None()
	if path != "" {
		if ns, err = netns.GetFromPath(path); err != nil {
			return fmt.Errorf("open network namespace %s: %w", path, err)
		}
		defer ns.Close()
	}
	return onThread(ns, f)
}

// onThread runs f on a separate thread, in a namespace if one is given. The thread ends with f, so
// that no thread returns to the scheduler in another namespace than the program's.
func onThread(ns netns.NsHandle, f func() error) (err error) {
	osthread.Run(func() {
		if ns.IsOpen() {
			if err = netns.Set(ns); err != nil {
				err = fmt.Errorf("enter a network namespace: %w", err)
				return
			}
		}
		err = f()
	})
	return err
}

// close removes the namespace. The kernel removes its interfaces some time later.
func (n *namespace) close() error {
	return errors.Join(n.ns.Close(), netnsdir.Delete(n.name))
}

// handle opens netlink in the namespace; the caller closes it.
func (n *namespace) handle(w wire) (*netlink.Handle, netlink.Link, error) {
	h, err := netlink.NewHandleAt(n.ns)
	if err != nil {
		return nil, nil, fmt.Errorf("open netlink in %s: %w", n.name, err)
	}
	link, err := h.LinkByName(w.name)
	if err != nil {
		h.Close()
		return nil, nil, fmt.Errorf("look up %s in %s: %w", w.name, n.name, err)
	}
	return h, link, nil
}
