package xdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// device is the network interface under the sockets. Its descriptors were made in
// the interface's network namespace and work from any thread.
type device struct {
	index  int
	mtu    int    // bytes, when it was opened
	queues uint32 // receive queues
	handle *netlink.Handle
	ctl    int // a socket for ethtool requests
}

// deviceState is what may change under us.
type deviceState struct {
	name    string
	up      bool   // administratively
	carrier bool   // the link works
	program uint32 // id of the XDP program attached; 0: none
	stats   netlink.LinkStatistics64
}

// findDevice looks an interface up in the thread's network namespace. The caller
// closes the device.
func findDevice(name string) (d *device, err error) {
	d = &device{ctl: -1}
	if d.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
			d = nil
		}
	}()
	link, err := d.handle.LinkByName(name)
	if err != nil {
		return nil, linkError(err)
	}
	if d.ctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open a socket for ethtool: %w", err)
	}
	a := link.Attrs()
	d.index, d.mtu = a.Index, a.MTU
	d.queues, err = rxQueues(d.ctl, name, a.NumRxQueues)
	return d, err
}

// linkError gives a missing interface its type.
func linkError(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w, or never was in this network namespace (see: ip link)", ErrInterfaceGone)
	}
	return fmt.Errorf("look the interface up: %w", err)
}

// look asks how the interface is now.
func (d *device) look() (deviceState, error) {
	link, err := d.handle.LinkByIndex(d.index)
	if err != nil {
		return deviceState{}, linkError(err)
	}
	a := link.Attrs()
	s := deviceState{name: a.Name, up: a.Flags&net.FlagUp != 0}
	s.carrier = a.OperState != netlink.OperDown && a.OperState != netlink.OperLowerLayerDown
	if a.Xdp != nil && a.Xdp.Attached {
		s.program = a.Xdp.ProgId
	}
	if a.Statistics != nil {
		s.stats = netlink.LinkStatistics64(*a.Statistics)
	}
	return s, nil
}

// close gives the descriptors back; closing again does nothing.
func (d *device) close() error {
	if d.handle == nil {
		return nil
	}
	d.handle.Close()
	d.handle = nil
	if d.ctl < 0 {
		return nil
	}
	if err := unix.Close(d.ctl); err != nil {
		return fmt.Errorf("close the socket for ethtool: %w", err)
	}
	return nil
}
