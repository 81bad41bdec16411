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

// kernel asks the kernel, one question at a time. Its sockets are in the network namespace of the thread that made
// them.
type kernel struct {
	mu     sync.Mutex
	handle *netlink.Handle // nil: closed
	// sockets has one for the questions that handle has no method for.
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

// close may be called again.
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

// ask runs f while the sockets are open.
func (k *kernel) ask(f func(*netlink.Handle) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.handle == nil {
		return errClosed
	}
	return f(k.handle)
}

// listings is how often a listing is asked for again that was changed while it was read.
const listings = 20

// list asks for listings until one is whole.
func (k *kernel) list(f func(*netlink.Handle) error) (err error) {
	for range listings {
		if err = k.ask(f); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}
