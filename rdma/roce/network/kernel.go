package network

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// kernel queries the kernel, one query at a time. Its sockets are in the network namespace of the
// thread that made them.
type kernel struct {
	mu     sync.Mutex
	handle *netlink.Handle // nil: closed
	// sockets holds one socket for the queries that handle has no method for.
	sockets map[int]*nl.SocketHandle
}

func newKernel() (*kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &kernel{handle: handle, sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}, nil
}

// close may be called several times.
func (k *kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.handle == nil {
		return
	}
	k.handle.Close()
	k.handle = nil
	k.sockets[unix.NETLINK_ROUTE].Close()
}

// ask calls f while the sockets are open. Only one f runs at a time.
func (k *kernel) ask(f func(*netlink.Handle) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.handle == nil {
		return errClosed
	}
	return f(k.handle)
}

// listings is how often a listing that changed while it was read is repeated.
const listings = 20

// list repeats a listing until it is complete.
func (k *kernel) list(f func(*netlink.Handle) error) (err error) {
	for range listings {
		if err = k.ask(f); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}
