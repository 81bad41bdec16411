package xdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// device is the network interface under the sockets. Its descriptors were made in
// the interface's network namespace and work from any thread.
type device struct {
	index  int
	name   string        // when it was opened
	link   linktype.Type // what its packets begin with
	mtu    int           // bytes, when it was opened
	queues uint32        // receive queues
	node   int           // NUMA node
	handle *netlink.Handle
	ctl    int // a socket for ethtool requests

	promiscuous int // a socket that keeps the device in promiscuous mode; -1: none

	keepsTags  bool                 // it takes VLAN tags out of packets again when it is closed
	stripsTags bool                 // it takes them out and cannot otherwise
	stamping   *unix.HwTstampConfig // how it stamped packets, to be set again; nil: as it does
	zcSegments uint32               // most frames of one packet with zero copy
	drops      []int                // which of the driver's counters are drops of its queues
	counters   int                  // how many counters the driver has
	before     lost                 // what was lost before the device was opened
	unsent     uint64               // what it had not sent by then
}

// deviceState is what may change under us.
type deviceState struct {
	name    string
	up      bool   // administratively
	carrier bool   // the link works
	program uint32 // id of the XDP program attached; 0: none
	lost    lost   // since the interface was made
	unsent  uint64 // packets to be sent that it dropped, or could not send, since then
}

// lost are packets the device or its driver dropped.
type lost struct {
	missed uint64 // rx_missed_errors: no room in the card
	errors uint64 // rx_errors: damaged
	driver uint64 // drops of the driver's queues, refusals by sockets included
}

func (l lost) since(before lost) lost {
	// A driver with fewer queues than before may count less than before.
	return lost{l.missed - before.missed, l.errors - before.errors, l.driver - min(before.driver, l.driver)}
}

// findDevice looks an interface up in the thread's network namespace. The caller
// closes the device.
func findDevice(name string) (*device, error) {
	d := &device{ctl: -1, promiscuous: -1}
	if err := d.find(name); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *device) find(name string) (err error) {
	if d.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	if d.ctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open a socket for ethtool: %w", err)
	}
	link, err := d.handle.LinkByName(name)
	if err != nil {
		return linkError(err)
	}
	found := netdev.Of(link)
	if err := found.Unknown(); err != nil {
		return err
	}
	a, name := link.Attrs(), found.Name // ethtool knows no alternative names that are long
	d.index, d.link, d.mtu, d.node = a.Index, found.Link, a.MTU, numa.Unknown
	if info, err := unix.IoctlGetEthtoolDrvinfo(d.ctl, name); err == nil {
		d.node = numa.OfPCI(unix.ByteSliceToString(info.Bus_info[:]))
	}
	if d.queues, err = rxQueues(d.ctl, name, a.NumRxQueues); err != nil {
		return err
	}
	d.zcSegments = zcSegments(d.index)
	d.name = name
	return d.startCounting(name)
}

// startCounting notes what was lost until now.
func (d *device) startCounting(name string) (err error) {
	if d.drops, d.counters, err = dropCounters(d.ctl, name); err != nil {
		return err
	}
	s, err := d.look()
	d.before, d.unsent = s.lost, s.unsent
	return err
}

// linkError gives a missing interface its type.
func linkError(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w, or never was in this network namespace (see: ip link)", ErrInterfaceGone)
	}
	return fmt.Errorf("look the interface up: %w", err)
}

// looks is how often look begins anew when the interface is renamed meanwhile: what ethtool
// knows is asked for by name.
const looks = 100

// look asks how the interface is now.
func (d *device) look() (s deviceState, err error) {
	for range looks {
		if s, err = d.lookOnce(); !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return s, err
}

func (d *device) lookOnce() (deviceState, error) {
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
		s.lost = lost{missed: a.Statistics.RxMissedErrors, errors: a.Statistics.RxErrors}
		s.unsent = a.Statistics.TxDropped + a.Statistics.TxErrors
	}
	s.lost.driver, err = d.driverDrops(a.Name)
	return s, err
}

// driverDrops sums the driver's counters of drops. Their number changes with that of
// the queues; then they are looked for again.
func (d *device) driverDrops(name string) (uint64, error) {
	sum, err := sumCounters(d.ctl, name, d.drops, d.counters)
	if !errors.Is(err, errCounters) {
		return sum, err
	}
	if d.drops, d.counters, err = dropCounters(d.ctl, name); err != nil {
		return 0, err
	}
	return sumCounters(d.ctl, name, d.drops, d.counters)
}

// close gives the descriptors back; closing again does nothing.
func (d *device) close() error {
	if d.handle == nil {
		return nil
	}
	err := errors.Join(d.restoreTags(), d.restoreStamping())
	d.handle.Close()
	d.handle = nil
	return errors.Join(err, closeSocket(&d.ctl, "ethtool"), closeSocket(&d.promiscuous, "promiscuous mode"))
}

// closeSocket closes a socket that may be there.
func closeSocket(fd *int, what string) error {
	if *fd < 0 {
		return nil
	}
	err := unix.Close(*fd)
	*fd = -1
	if err != nil {
		return fmt.Errorf("close the socket for %s: %w", what, err)
	}
	return nil
}
