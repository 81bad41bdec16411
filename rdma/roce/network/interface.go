package network

import (
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/rdma"
)

// Interface is a network interface, with the VLANs on it.
type Interface struct {
	kernel *kernel
	index  int
	done   chan struct{} // closed by Close
	once   sync.Once     // of Close

	mu    sync.Mutex
	links []link // the interface, and the VLANs on it
	table table
	gone  bool
}

// Open looks up the interface in the network namespace of the calling thread. The caller closes it. The error is ErrInterfaceGone
// where there is none, or ErrNotEthernet.
func Open(name string) (*Interface, error) {
	i, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("open network interface %.128s: %w", name, err)
	}
	return i, nil
}

func open(name string) (*Interface, error) {
	k, err := newKernel()
	if err != nil {
		return nil, err
	}
	i := &Interface{kernel: k, done: make(chan struct{})}
	if err := i.find(name); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// find looks the name up and reads what there is.
func (i *Interface) find(name string) error {
	err := i.kernel.ask(func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return linkError(err)
		}
		i.index = l.Attrs().Index
		return nil
	})
	if err != nil {
		return err
	}
	return i.reread()
}

// reread has the Interface be as the kernel has it now.
func (i *Interface) reread() error {
	links, err := i.kernel.links(i.index)
	if err != nil {
		return err
	}
	addresses, err := i.kernel.addresses(links)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.links = links
	i.table.update(addresses)
	return nil
}

// Close ends calls that wait, and gives everything back. Closing again does nothing.
func (i *Interface) Close() error {
	i.once.Do(func() {
		close(i.done)
		i.kernel.close()
	})
	return nil
}

// unusable says why there is nothing to be had of the interface. The caller has the lock.
func (i *Interface) unusable() error {
	select {
	case <-i.done:
		return ErrClosed
	default:
	}
	if i.gone {
		return ErrInterfaceGone
	}
	return nil
}

// base is the interface itself as it was last read.
func (i *Interface) base() link {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.links[0]
}

// Index is the number the kernel has for the interface in its namespace.
func (i *Interface) Index() int { return i.index }

// Name is what the interface is called now.
func (i *Interface) Name() string { return i.base().name }

// MAC is the interface's own; a VLAN on it may have another.
func (i *Interface) MAC() MAC { return i.base().mac }

// MTU is the longest packet in bytes, Ethernet's header not included.
func (i *Interface) MTU() int { return i.base().mtu }

// Up reports whether the interface is set up and its link works.
func (i *Interface) Up() bool { return i.base().up }

// GIDs are the places of the table that are in use, by index. The slice is the caller's.
func (i *Interface) GIDs() []rdma.GIDEntry {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.table.entries()
}

// isOwn reports whether an address is one of the interface's or of a VLAN's on it.
func (i *Interface) isOwn(g rdma.GID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.table.find(g) >= 0
}

// placeName is a place of the table for error texts.
func (i *Interface) placeName(place int) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := i.links[0].name
	if place < 0 || place >= len(i.table) || i.table[place] == (address{}) {
		return fmt.Sprintf("%s, GID %d", name, place)
	}
	from := i.table[place]
	for _, l := range i.links {
		if l.index == from.link {
			name = l.name
		}
	}
	return fmt.Sprintf("%v on %s", from.gid, name)
}
