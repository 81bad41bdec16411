package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sockaddr returns an address as the kernel has it, and its family.
func sockaddr(a netip.AddrPort) (int, unix.Sockaddr) {
	if a.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// index returns the index of an interface; 0 without a name.
func index(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("-interface %s: %w (see: ip link)", name, err)
	}
	return i.Index, nil
}

// dialTicks opens a socket that sends to a line. The caller closes it.
func dialTicks(to netip.AddrPort, iface string) (fd int, err error) {
	family, at := sockaddr(to)
	i, err := index(iface)
	if err != nil {
		return -1, err
	}
	if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("open a socket for ticks: %w", err)
	}
	switch {
	case i == 0 || !to.Addr().IsMulticast():
	case family == unix.AF_INET:
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(i)})
	default:
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, i)
	}
	if err == nil {
		err = unix.Connect(fd, at)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("send ticks to %s: %w (ip route get, for the way there)", to, err)
	}
	return fd, nil
}

// room is how many bytes of ticks the kernel may keep for the trader.
const room = 4 << 20

// listenTicks opens a socket that receives from a line. The caller closes it.
func listenTicks(on netip.AddrPort, iface string) (fd int, err error) {
	family, at := sockaddr(on)
	i, err := index(iface)
	if err != nil {
		return -1, err
	}
	if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, fmt.Errorf("open a socket for ticks: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) != nil { // needs a right
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room) // the kernel then cuts it
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, at))
	switch {
	case err != nil || !on.Addr().IsMulticast():
	case family == unix.AF_INET:
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: on.Addr().As4(), Ifindex: int32(i)})
	default:
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: on.Addr().As16(), Interface: uint32(i)})
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("receive ticks at %s: %w", on, err)
	}
	return fd, nil
}

// listenOrders opens a socket that waits for a trader. Its connections have the receive buffer, if that is not 0.
func listenOrders(ctx context.Context, at netip.AddrPort, buffer uint64) (*net.TCPListener, error) {
	var c net.ListenConfig
	if buffer > 0 { // before the connection is made: its window follows from it
		c.Control = func(_, _ string, raw syscall.RawConn) error {
			var set error
			err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, int(buffer)) })
			return errors.Join(err, set)
		}
	}
	l, err := c.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// connection is a connection for orders.
type connection struct {
	file *os.File
	fd   int // does not block
}

// newConnection takes over a connection. Its segments leave at once (TCP_NODELAY, which is how Go makes connections).
func newConnection(c *net.TCPConn) (*connection, error) {
	f, err := c.File()
	if err = errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	k := &connection{f, int(f.Fd())}
	if err := unix.SetNonblock(k.fd, true); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return k, nil
}

// stampSent has the kernel stamp what leaves a socket, in software. Stamps are read with nextSent.
func stampSent(fd int) error {
	const flags = unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags)
}

// stampBoth does what stampSent and stampReceived do.
func stampBoth(fd int) error {
	const flags = unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags)
}

// stampReceived has the kernel stamp what a socket receives, in software.
func stampReceived(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE)
}

// awaitStamps waits until the kernel stamps what is received. It begins to when the first socket asks for it, but
// not at once (net_enable_timestamp leaves that to a worker thread): on a busy machine the first hundreds of packets
// have no stamp. It returns at once if the loopback interface is down, and after ten seconds in any case: the result
// counts what has no stamp.
func awaitStamps() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("wait for stamps: %w", err)
	}
	defer unix.Close(fd)
	if err := stampReceived(fd); err != nil {
		return fmt.Errorf("wait for stamps: %w", err)
	}
	if unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) != nil {
		return nil
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("wait for stamps: %w", err)
	}
	var b [1]byte
	var beside [besideLen]byte
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		if unix.Sendto(fd, b[:], 0, self) != nil {
			return nil
		}
		for {
			_, n, err := receive(fd, b[:], beside[:], 0)
			if err != 0 {
				break
			}
			if at, _, _ := stamps(beside[:n]); at != 0 {
				return nil
			}
		}
	}
	return nil
}

// besideLen is room for what the kernel says beside a message.
const besideLen = 256

// nextSent reads the next stamp of a socket with stampSent: of which of its datagrams, from 0 on, and when it left, in
// nanoseconds since 1970.
func nextSent(fd int) (id uint32, at int64, ok bool) {
	var b [1]byte
	var beside [besideLen]byte
	_, n, err := receive(fd, b[:], beside[:], unix.MSG_ERRQUEUE)
	if err != 0 {
		return 0, 0, false
	}
	at, id, ok = stamps(beside[:n])
	return id, at, ok && at != 0
}

// stamps returns the kernel's stamp beside a message, 0 if there is none, and the number of the sent datagram if there
// is one.
func stamps(b []byte) (at int64, id uint32, numbered bool) {
	native := binary.NativeEndian
	for len(b) >= unix.SizeofCmsghdr {
		n := native.Uint64(b)
		if n < unix.SizeofCmsghdr || n > uint64(len(b)) {
			break
		}
		level, kind, data := native.Uint32(b[8:]), native.Uint32(b[12:]), b[unix.SizeofCmsghdr:n]
		switch {
		case level == unix.SOL_SOCKET && kind == unix.SCM_TIMESTAMPING && len(data) >= 16:
			at = int64(native.Uint64(data))*1e9 + int64(native.Uint64(data[8:]))
		case (level == unix.SOL_IP && kind == unix.IP_RECVERR || level == unix.SOL_IPV6 && kind == unix.IPV6_RECVERR) && len(data) >= 16:
			if data[4] == unix.SO_EE_ORIGIN_TIMESTAMPING {
				id, numbered = native.Uint32(data[12:]), true
			}
		}
		b = b[min(uint64(len(b)), (n+7)&^7):]
	}
	return at, id, numbered
}
