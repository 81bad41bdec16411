package xdp

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is one AF_XDP socket with its rings.
type socket struct {
	fd    int
	queue uint32
	rings rings
	timed bool // sent packets may get times
}

// openSocket makes a socket with rings. Without a shared socket it registers the
// region. The caller binds and closes it.
func (c *Config) openSocket(queue uint32, registers bool) (*socket, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, socketError(err)
	}
	s := &socket{fd: fd, queue: queue}
	if err := s.equip(c, registers); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// equip sets the options that a socket needs before bind.
func (s *socket) equip(c *Config, registers bool) error {
	if registers {
		if err := s.register(c); err != nil {
			return err
		}
	}
	if err := c.sizeRings(s.fd); err != nil {
		return err
	}
	if err := s.rings.mapFrom(c, s.fd); err != nil {
		return fmt.Errorf("map rings: %w", err)
	}
	return c.tune(s.fd)
}

// register registers the region with the kernel. A registration that failed to bind is charged to
// the user until the kernel has cleaned up, so register retries for a while.
func (s *socket) register(c *Config) error {
	r, flags := c.region(), uint32(0)
	if c.Shape.Unaligned {
		flags = unix.XDP_UMEM_UNALIGNED_CHUNK_FLAG
	}
	err := retry(registerPatience, unix.ENOBUFS, func() (err error) {
		if c.SendTimes {
			if s.timed, err = registerTimed(s.fd, r.Data(), c.chunk(), c.Shape.Headroom); s.timed || err != nil {
				return err
			}
		}
		return registerUMEM(s.fd, r.Data(), c.chunk(), c.Shape.Headroom, flags, 0)
	})
	if err != nil {
		return registerError(r.Size(), err)
	}
	return nil
}

const registerPatience = 200 * time.Millisecond

// tune sets the optional features. A send budget makes one system call send a whole ring in copy
// mode (XDP_MAX_TX_SKB_BUDGET, Linux 6.17). Without it Kick repeats the call.
func (c *Config) tune(fd int) error {
	if c.Direction.sends() {
		err := setInt(fd, unix.XDP_MAX_TX_SKB_BUDGET, c.RingSize)
		if err != nil && !errors.Is(err, unix.ENOPROTOOPT) && !errors.Is(err, unix.EACCES) {
			return fmt.Errorf("set the send budget: %w", err)
		}
	}
	return c.BusyPoll.set(fd)
}

func (b BusyPoll) set(fd int) error {
	if b.Time == 0 {
		return nil
	}
	for _, o := range []struct{ option, value int }{
		{unix.SO_PREFER_BUSY_POLL, 1},
		{unix.SO_BUSY_POLL, int(b.Time.Microseconds())},
		{unix.SO_BUSY_POLL_BUDGET, b.Budget},
	} {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.option, o.value)
		switch {
		case errors.Is(err, unix.ENOPROTOOPT):
			return fmt.Errorf("set busy polling: %w", &UnsupportedError{"busy polling", "CONFIG_NET_RX_BUSY_POLL", err})
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("set busy polling: %w: %w (grant CAP_NET_ADMIN)", ErrPermission, err)
		case err != nil:
			return fmt.Errorf("set busy polling to %v, %d packets: %w", b.Time, b.Budget, err)
		}
	}
	return nil
}

// bind binds the socket to its queue. It waits until deadline for a queue that is in use. share is
// the socket whose registration it uses; nil if the socket has its own.
func (s *socket) bind(ifindex int, flags uint16, share *socket, deadline time.Time) error {
	addr := &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(ifindex), QueueID: s.queue}
	if share != nil {
		addr.Flags, addr.SharedUmemFD = unix.XDP_SHARED_UMEM, uint32(share.fd)
	}
	return retry(time.Until(deadline), unix.EBUSY, func() error { return unix.Bind(s.fd, addr) })
}

// retryPause is the time between two attempts while the kernel may still be cleaning up.
const retryPause = 10 * time.Millisecond

// retry repeats f while it returns the given errno, for at most limit.
func retry(limit time.Duration, while unix.Errno, f func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(retryPause) {
		err := f()
		if !errors.Is(err, while) || time.Now().After(end) {
			return err
		}
	}
}

// close unmaps the rings and closes the socket. The rings go first: a mapping keeps the socket's file open.
// The lock keeps a child process that is being started from holding a copy of the descriptor. So this close
// is the last one, and the kernel has removed the socket from its queue when it returns. xsk_release in
// net/xdp/xsk.c waits, in xsk_unbind_dev, until no processor handles a packet for it.
func (s *socket) close() error {
	err := s.rings.unmap()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if e := unix.Close(s.fd); e != nil {
		err = errors.Join(err, fmt.Errorf("close AF_XDP socket: %w", e))
	}
	return err
}

// closeAll closes sockets in reverse order.
func closeAll(sockets []*socket) error {
	var err error
	for i := len(sockets) - 1; i >= 0; i-- {
		err = errors.Join(err, sockets[i].close())
	}
	return err
}
