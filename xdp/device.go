package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/genl"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// device is the network interface under the sockets. Its descriptors were made in
// the interface's network namespace and work from any thread.
type device struct {
	index  int
	name   string        // when it was opened
	kind   string        // as ip -d link names it; device for a card
	stack  netdev.Stack  // the interfaces that it is made of
	link   linktype.Type // header at the start of its packets
	mtu    int           // bytes, when it was opened
	queues uint32        // receive queues
	node   int           // NUMA node
	handle *netlink.Handle
	ctl    int // a socket for ethtool requests

	promiscuous int // a socket that keeps the device in promiscuous mode; -1: none

	keepsTags  bool                 // Close must enable VLAN tag stripping again
	stripsTags bool                 // VLAN tag stripping is on and cannot be disabled
	stamping   *unix.HwTstampConfig // stamping configuration to restore; nil: unchanged
	zcSegments uint32               // the most frames of one packet with zero copy
	drops      []int                // which of the driver's counters are drops of its queues
	counters   int                  // how many counters the driver has
	before     lost                 // losses before the device was opened
	unsent     uint64               // packets that it had failed to send by then
}

// deviceState is the state of an interface as look read it. Other programs and the kernel can change it at
// any time.
type deviceState struct {
	name    string
	up      bool   // administratively
	carrier bool   // the link works
	program uint32 // id of the XDP program attached; 0: none
	lost    lost   // since the interface was made
	unsent  uint64 // packets of senders that it dropped or could not send, since then
}

// lost counts packets that the device or its driver dropped.
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
	a, name := link.Attrs(), found.Name // ethtool does not accept long alternative names
	d.index, d.link, d.mtu, d.node = a.Index, found.Link, a.MTU, numa.Unknown
	if info, err := unix.IoctlGetEthtoolDrvinfo(d.ctl, name); err == nil {
		d.node = numa.OfPCI(unix.ByteSliceToString(info.Bus_info[:]))
	}
	if d.queues, err = rxQueues(d.ctl, name, a.NumRxQueues); err != nil {
		return err
	}
	d.zcSegments = zcSegments(d.index)
	d.name = name
	if err := d.findKind(link); err != nil {
		return err
	}
	return d.startCounting(name)
}

// startCounting records the present values of the counters.
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

// looks limits the retries of look if the interface is renamed during the call: ethtool identifies
// it by name.
const looks = 100

// look reads the present state of the interface.
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

// driverDrops sums the driver's drop counters. A driver adds and removes counters with its queues;
// their positions are then looked up again.
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

// close closes the descriptors. A second call does nothing.
func (d *device) close() error {
	if d.handle == nil {
		return nil
	}
	err := errors.Join(d.restoreTags(), d.restoreStamping())
	d.handle.Close()
	d.handle = nil
	return errors.Join(err, closeSocket(&d.ctl, "ethtool"), closeSocket(&d.promiscuous, "promiscuous mode"))
}

// closeSocket closes a socket, if it exists.
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

// Numbers of the netdev family: include/uapi/linux/netdev.h.
const (
	netdevFamily     = "netdev"
	netdevDevGet     = 1 // NETDEV_CMD_DEV_GET
	netdevIfindex    = 1 // NETDEV_A_DEV_IFINDEX
	netdevZCSegments = 4 // NETDEV_A_DEV_XDP_ZC_MAX_SEGS
	netdevMetadata   = 5 // NETDEV_A_DEV_XDP_RX_METADATA_FEATURES

	netdevXSKFeatures = 6 // NETDEV_A_DEV_XSK_FEATURES

	metadataTimestamp  = 1 << 0 // NETDEV_XDP_RX_METADATA_TIMESTAMP
	featureTxTimestamp = 1 << 0 // NETDEV_XSK_FLAGS_TX_TIMESTAMP
)

// zcSegments returns how many frames the driver allows for one packet with zero copy, for an interface in
// the network namespace of the calling thread. It is one if the kernel does not say, as before 6.6.
func zcSegments(ifindex int) uint32 {
	if v := netdevAttribute(ifindex, netdevZCSegments); len(v) == 4 {
		return max(1, binary.NativeEndian.Uint32(v))
	}
	return 1
}

// stampsArrival returns an error if the driver does not give programs times of the card's clock.
// The interface is in the network namespace of the calling thread. The kernel reports it since 6.7.
func stampsArrival(ifindex int) error {
	v := netdevAttribute(ifindex, netdevMetadata)
	switch {
	case len(v) != 8:
		return &UnsupportedError{"times of the card's own clock", "Linux 6.7", unix.EOPNOTSUPP}
	case binary.NativeEndian.Uint64(v)&metadataTimestamp == 0:
		return errors.New("the driver gives programs no times of the card's clock")
	}
	return nil
}

// netdevAttribute returns an attribute of the netdev family for an interface; nil if there is none.
func netdevAttribute(ifindex int, attribute uint16) []byte {
	a, err := genl.Ask(netdevFamily, netdevDevGet, nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))))
	if err != nil {
		return nil
	}
	return a[attribute]
}

// takesFragments returns an error if the kernel does not support packets of several frames. The
// kernel checks the flags of a bind before it looks for the interface, and no interface has number
// 0 (xsk_bind in net/xdp/xsk.c).
func takesFragments() error {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socketError(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_USE_SG}); errors.Is(err, unix.EINVAL) {
		return &UnsupportedError{"packets of several frames", "Linux 6.6", err}
	}
	return nil
}

// probe finds out whether the kernel and the driver have released a queue. It is a socket with one
// page, made together with a port, while the thread is in the right network namespace. Binding a
// queue that is in use fails with EBUSY before anything else is checked (xp_assign_dev in
// net/xdp/xsk_buff_pool.c). Any other error means that the queue is free. The frames of the page
// have so little room that the bind itself always fails.
type probe struct {
	fd   int
	page []byte
}

// The probe's frames: half a page with room for less than any packet.
const (
	probeChunk    = 2048
	probeHeadroom = 1024
)

func newProbe() (*probe, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, socketError(err)
	}
	p := &probe{fd: fd}
	p.page, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err == nil {
		err = registerUMEM(fd, p.page, probeChunk, probeHeadroom, 0, 0)
	}
	for _, option := range []int{unix.XDP_RX_RING, unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING} {
		if err == nil {
			err = setInt(fd, option, unusedRing)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the probe of a queue: %w", err), p.close())
	}
	return p, nil
}

// wait returns when the queue is free, or an error after limit.
func (p *probe) wait(ifindex int, queue uint32, limit time.Duration) error {
	addr := &unix.SockaddrXDP{Flags: unix.XDP_ZEROCOPY, Ifindex: uint32(ifindex), QueueID: queue}
	err := retry(limit, unix.EBUSY, func() error { return unix.Bind(p.fd, addr) })
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("wait %v for the driver to release the queue: %w (its frames stay unused; close again later)", limit, ErrQueueBusy)
	}
	return nil
}

// close closes the probe. A second call does nothing.
func (p *probe) close() error {
	if p == nil || p.fd < 0 {
		return nil
	}
	err := unix.Close(p.fd)
	p.fd = -1
	if p.page != nil {
		err = errors.Join(err, unix.Munmap(p.page))
	}
	if err != nil {
		return fmt.Errorf("close the probe of a queue: %w", err)
	}
	return nil
}

// stringLength is ETH_GSTRING_LEN of include/uapi/linux/ethtool.h.
const stringLength = 32

// queueDrops matches a driver's counters of packets that one of its queues dropped. veth and
// virtio-net use these names, and also count what a socket refused. Drivers of real cards drop
// earlier; rx_missed_errors counts that.
var queueDrops = regexp.MustCompile(`^rx(_queue_)?[0-9]+_drops$`)

// dropCounters finds the counters of a device that sumCounters adds up.
func dropCounters(fd int, name string) (indices []int, total int, err error) {
	total, err = ethtoolStringCount(fd, name)
	if err != nil || total == 0 {
		return nil, 0, noCounters(err)
	}
	text, err := ethtoolStrings(fd, name, total)
	if err != nil {
		return nil, 0, noCounters(err)
	}
	for i := range total {
		s, _, _ := bytes.Cut(text[i*stringLength:(i+1)*stringLength], []byte{0})
		if queueDrops.Match(s) {
			indices = append(indices, i)
		}
	}
	return indices, total, nil
}

// errCounters means that the names of the counters have changed since they were read.
var errCounters = errors.New("the driver changed its counters")

// noCounters returns nil for an error that means that the driver has no counters.
func noCounters(err error) error {
	if err == nil || err == unix.EOPNOTSUPP {
		return nil
	}
	return fmt.Errorf("list the driver's counters: %w", err)
}

// sumCounters adds up counters of a device.
func sumCounters(fd int, name string, indices []int, total int) (sum uint64, err error) {
	if len(indices) == 0 {
		return 0, nil
	}
	values, err := ethtoolStats(fd, name, total)
	if err != nil {
		return 0, fmt.Errorf("read the driver's counters: %w", err)
	}
	for _, i := range indices {
		sum += values[i]
	}
	return sum, nil
}
