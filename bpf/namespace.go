package bpf

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// namespace is a network namespace that is needed again, by whatever thread; its zero
// value is any.
type namespace struct{ fd *netns.NsHandle }

// home is the calling thread's namespace, where the program is bound to a device:
// the kernel looks that up in the namespace of whoever loads the program, also
// when it is one with another filter.
func (c Config) home() (namespace, error) {
	if c.Device == 0 {
		return namespace{}, nil
	}
	fd, err := netns.Get()
	if err != nil {
		return namespace{}, fmt.Errorf("look up the thread's network namespace: %w", err)
	}
	return namespace{&fd}, nil
}

// do calls f on a thread in the namespace. Only where that is another than the calling
// thread's it takes CAP_SYS_ADMIN.
func (n namespace) do(f func() error) error {
	if n.fd == nil {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return fmt.Errorf("look up the thread's network namespace: %w", err)
	}
	defer here.Close()
	if here.Equal(*n.fd) {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := netns.Set(*n.fd)
		if err != nil {
			err = fmt.Errorf("enter the interface's network namespace: %w (grant CAP_SYS_ADMIN)", err)
		} else {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (n namespace) close() error {
	if n.fd == nil {
		return nil
	}
	if err := n.fd.Close(); err != nil {
		return fmt.Errorf("close the network namespace: %w", err)
	}
	return nil
}
