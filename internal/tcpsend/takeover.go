package tcpsend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse means that a connection is given that somebody sends on already.
var ErrInUse = errors.New("the connection is in use already")

// TakeOver returns a Conn that sends on a connection of another process, of which fd is a descriptor. The calling thread
// must be in the network namespace whose interface Config names; its Remote does not matter. The Conn has a copy of fd.
// TakeOver waits until the kernel has sent what the process has written, as long as ctx permits. An error wraps ErrInUse, or
// says what about the connection does not fit.
//
// The process keeps the socket: it may read from it, and must not write to it any more. Repair mode is on only while a
// payload is booked, and for a moment each time that the Conn must know what the kernel acknowledges. In these moments a
// read of the process answers EPERM. When the Conn is closed the process may write again, unless something is owed
// (Settle): then Close resets the connection. Whatever the process does to the socket harms its own connection only.
func TakeOver(ctx context.Context, fd int, c Config) (*Conn, error) {
	k := &Conn{fd: -1, shared: true, minimum: 1 << 31, owed: make([]byte, 0, 64<<10)}
	if err := k.takeOver(ctx, fd, c); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (c *Conn) takeOver(ctx context.Context, fd int, o Config) (err error) {
	if err := suitable(fd); err != nil {
		return err
	}
	if c.cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
		return fmt.Errorf("read the number of the socket: %w", err)
	}
	if !takenOver.add(c.cookie) {
		c.cookie = 0
		return ErrInUse
	}
	if c.local, c.remote, err = endsOf(fd); err != nil {
		return err
	}
	if c.fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		c.fd = -1
		return fmt.Errorf("copy its descriptor: %w", err)
	}
	for _, o := range []struct{ level, option, value int }{
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer}, {unix.IPPROTO_TCP, unix.TCP_CORK, 0}, {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	} {
		if err := unix.SetsockoptInt(c.fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("set option %d of level %d: %w (grant CAP_NET_ADMIN)", o.option, o.level, err)
		}
	}
	if c.ingress, err = attach(o.Interface, c.local, c.remote); err != nil {
		return err
	}
	if err := c.settled(ctx); err != nil {
		return err
	}
	return c.begin()
}

// suitable checks that a descriptor is that of an established TCP connection in this network namespace, that nobody else
// sends on it in repair mode, and that the kernel sends payloads as they are.
func suitable(fd int) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return errors.New("the descriptor is not that of a socket")
	}
	option := func(level, name int) int {
		v, err := unix.GetsockoptInt(fd, level, name)
		if err != nil {
			return -1
		}
		return v
	}
	family, kind, protocol := option(unix.SOL_SOCKET, unix.SO_DOMAIN), option(unix.SOL_SOCKET, unix.SO_TYPE), option(unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if family != unix.AF_INET && family != unix.AF_INET6 || kind != unix.SOCK_STREAM || protocol != unix.IPPROTO_TCP {
		return fmt.Errorf("the socket has family %d, type %d and protocol %d, and is not one of TCP", family, kind, protocol)
	}
	theirs, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return fmt.Errorf("read its network namespace: %w", err)
	}
	ours, err := namespace()
	switch {
	case err != nil:
		return err
	case ours != theirs:
		return errors.New("the socket is in another network namespace than the flow")
	}
	var info unix.TCPInfo
	if errno := get(fd, unix.TCP_INFO, &info); errno != 0 {
		return fmt.Errorf("read its state: %w", errno)
	}
	if info.State != stateConnected {
		return fmt.Errorf("the connection is not established (its state is %d)", info.State)
	}
	if protocol, _ := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP); protocol != "" { // an error: it has none
		return fmt.Errorf("the kernel changes what is sent on it (TCP_ULP is %q)", protocol)
	}
	if option(unix.IPPROTO_TCP, unix.TCP_REPAIR) != 0 {
		return fmt.Errorf("%w: its socket is in repair mode", ErrInUse)
	}
	return nil
}

// namespace returns the number of the calling thread's network namespace.
func namespace() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("look up the network namespace: %w", err)
	}
	n, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return 0, fmt.Errorf("look up the network namespace: %w", err)
	}
	return n, nil
}

// endsOf returns the addresses of both ends of a connection.
func endsOf(fd int) (local, remote netip.AddrPort, err error) {
	for i, ask := range []func(int) (unix.Sockaddr, error){unix.Getsockname, unix.Getpeername} {
		at, err := ask(fd)
		if err != nil {
			return local, remote, fmt.Errorf("read its addresses: %w", err)
		}
		var end netip.AddrPort
		switch a := at.(type) {
		case *unix.SockaddrInet4:
			end = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *unix.SockaddrInet6:
			end = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
		}
		if i == 0 {
			local = end
		} else {
			remote = end
		}
	}
	return local, remote, nil
}

// settled waits until the kernel has sent everything that was written.
func (c *Conn) settled(ctx context.Context) error {
	for {
		n, errno := unsent(c.fd)
		switch {
		case errno != 0:
			return fmt.Errorf("read how much it has to send: %w", errno)
		case n == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d bytes that were written to it are not sent yet: %w", n, context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// takenOver has the sockets on which Conns of this process send for other processes.
var takenOver = cookies{all: map[uint64]bool{}}

type cookies struct {
	mu  sync.Mutex
	all map[uint64]bool
}

// add reports whether a socket was not there.
func (c *cookies) add(n uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[n] {
		return false
	}
	c.all[n] = true
	return true
}

func (c *cookies) remove(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, n)
}
