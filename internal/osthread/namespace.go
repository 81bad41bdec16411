package osthread

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// Namespace is a network namespace that later calls need, on any thread. The zero value stands for any namespace. It is not
// changed after Here has returned it, and its methods may be called on any goroutine until Close.
type Namespace struct{ fd *netns.NsHandle }

// Here returns the network namespace of the calling thread. The caller closes it.
func Here() (Namespace, error) {
	fd, err := netns.Get()
	if err != nil {
		return Namespace{}, fmt.Errorf("look up the thread's network namespace: %w", err)
	}
	return Namespace{&fd}, nil
}

// Do calls f on a thread in the namespace, and returns f's error. It needs CAP_SYS_ADMIN only if the calling thread is in
// another namespace.
func (n Namespace) Do(f func() error) error {
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
	Run(func() {
		if err = netns.Set(*n.fd); err != nil {
			err = fmt.Errorf("enter the network namespace in which it was opened: %w (grant CAP_SYS_ADMIN)", err)
		} else {
			err = f()
		}
	})
	return err
}

// Close releases the namespace.
func (n Namespace) Close() error {
	if n.fd == nil {
		return nil
	}
	if err := n.fd.Close(); err != nil {
		return fmt.Errorf("close the network namespace: %w", err)
	}
	return nil
}
