package bpf

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"

	"github.com/unifiedd/unifiedd/internal/osthread"
)

// namespace is a network namespace that later calls need, from any thread. Its zero value stands
// for any namespace.
type namespace struct{ fd *netns.NsHandle }

// home returns the calling thread's namespace if the program is bound to a device. The kernel looks
// up the device in the namespace of the thread that loads the program. That also applies to later
// loads with another filter.
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

// do calls f on a thread in the namespace. It needs CAP_SYS_ADMIN only if that is not the calling
// thread's namespace.
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
	osthread.Run(func() {
		if err = netns.Set(*n.fd); err != nil {
			err = fmt.Errorf("enter the interface's network namespace: %w (grant CAP_SYS_ADMIN)", err)
		} else {
			err = f()
		}
	})
	return err
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
