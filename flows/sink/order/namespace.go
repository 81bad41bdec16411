package order

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"

	"github.com/unifiedd/unifiedd/internal/osthread"
)

// namespace is the network namespace in which a flow was opened. Its sockets belong there, also those that a goroutine
// makes later.
type namespace struct{ fd netns.NsHandle }

func thisNamespace() (*namespace, error) {
	fd, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("look up the thread's network namespace: %w", err)
	}
	return &namespace{fd}, nil
}

// do calls f on a thread in the namespace. It needs CAP_SYS_ADMIN only if that is not the calling thread's namespace.
func (n *namespace) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return fmt.Errorf("look up the thread's network namespace: %w", err)
	}
	defer here.Close()
	if here.Equal(n.fd) {
		return f()
	}
	osthread.Run(func() {
		if err = netns.Set(n.fd); err != nil {
			err = fmt.Errorf("enter the network namespace of the flow: %w (grant CAP_SYS_ADMIN)", err)
		} else {
			err = f()
		}
	})
	return err
}

func (n *namespace) close() error { return n.fd.Close() }
