package tcpsend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config says how Dial connects.
type Config struct {
	// Remote is the address of the peer.
	Remote netip.AddrPort
	// Interface is the number of the interface on which the peer's packets arrive.
	Interface int
}

// Conn is a TCP connection of the kernel on whose behalf segments are sent. See the package for its use.
type Conn struct {
	fd            int
	local, remote netip.AddrPort
	clock         clock
	ingress       *ingress
	path          atomic.Pointer[Path] // nil: not known
	used          *Path                // of template
	template      template
	routing       Routing
	stamps        bool
	refused       bool   // the connection has an option that Build does not know
	shared        bool   // another process has the socket, too: see TakeOver
	cookie        uint64 // of a shared socket; 0: none
	read          uint64 // bytes that a shared connection had received when wup and wnd were read

	repair   bool
	next     uint32 // sequence of the next byte
	unacked  uint32 // sequence of the oldest byte that is not acknowledged, when last refreshed
	edge     uint32 // end of the peer's window, when last refreshed
	ackBase  uint32 // sequence at which the kernel's count of acknowledged bytes begins
	since    uint32 // segments booked since the last refresh
	wup, wnd uint32 // what the kernel acknowledged last, and the window that it offered with it
	id       uint16
	info     unix.TCPInfo
	news     uint32 // segments of the peer that the program has seen, when last refreshed
	unseen   uint32 // segments of the peer that it has not seen, at most
	astray   bool   // the last segment of the peer that is known of was one of those
	noticed  uint32 // news when astray became true
	minimum  uint32 // shortest round trip in microseconds
	lowered  uint32 // acknowledgements lowered, when last noticed
	early    bool   // of what was sent before behind, an acknowledgement was lowered
	behind   uint32
	missed   time.Time // when early became true
	owed     []byte    // sent, and not booked yet
	plain    bool      // those are not sent either
	ended    bool
	err      error
	asked    atomic.Pointer[error] // by End
}

// keptBytes and keptSegments are how much may be not acknowledged, so that the send buffer has room for all of it.
// The kernel counts at least 1.3 KiB for a short segment.
const (
	keptBytes    = 512 << 10
	keptSegments = 512
	sendBuffer   = 8 << 20
)

// Dial connects to a peer, in the network namespace of the calling thread. It blocks as long as ctx permits. The caller closes
// the Conn.
func Dial(ctx context.Context, c Config) (*Conn, error) {
	k := &Conn{remote: c.Remote, minimum: 1 << 31, owed: make([]byte, 0, 64<<10)}
	if err := k.dial(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", c.Remote, err), k.Close())
	}
	return k, nil
}

func (c *Conn) dial(ctx context.Context, o Config) (err error) {
	c.fd = -1
	d := net.Dialer{Control: prepare, KeepAlive: -1}
	d.SetMultipathTCP(false)
	dialed, err := d.DialContext(ctx, "tcp", o.Remote.String())
	if err != nil {
		return err
	}
	defer dialed.Close() // the socket is ours by its copy
	tcp := dialed.(*net.TCPConn)
	c.local = tcp.LocalAddr().(*net.TCPAddr).AddrPort()
	c.local, c.remote = netip.AddrPortFrom(c.local.Addr().Unmap().WithZone(""), c.local.Port()), netip.AddrPortFrom(o.Remote.Addr().Unmap().WithZone(""), o.Remote.Port())
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	control := raw.Control(func(fd uintptr) { c.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(control, err); err != nil {
		return err
	}
	if c.ingress, err = attach(o.Interface, c.local, c.remote); err != nil {
		return err
	}
	return c.begin()
}

// prepare sets what must be set before the socket connects. A connection ends when the peer has answered nothing for 25
// seconds: neither keep-alives, which begin after 10 of them, nor data.
func prepare(_, _ string, raw syscall.RawConn) (err error) {
	outer := raw.Control(func(fd uintptr) {
		for _, o := range []struct{ level, option, value int }{
			{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer},
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 10},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 25000},
		} {
			if err = unix.SetsockoptInt(int(fd), o.level, o.option, o.value); err != nil {
				err = fmt.Errorf("set option %d of level %d: %w (grant CAP_NET_ADMIN)", o.option, o.level, err)
				return
			}
		}
	})
	return errors.Join(outer, err)
}

// Routing is what the kernel's routing policy may ask for besides addresses and ports: options of the socket.
type Routing struct {
	Mark  uint32 // SO_MARK
	UID   uint32 // owner of the socket
	Bound int    // index of the interface that it is bound to; 0: none
	Class uint8  // IP_TOS or IPV6_TCLASS
}

// Routing returns the options as they were when the connection began.
func (c *Conn) Routing() Routing { return c.routing }

// begin reads the state of a new connection.
func (c *Conn) begin() error {
	if err := c.readRouting(); err != nil {
		return err
	}
	if err := c.clock.set(c.fd); err != nil {
		return fmt.Errorf("read the clock of its timestamps: %w", err)
	}
	if errno := c.enter(); errno != 0 {
		return fmt.Errorf("switch repair mode on: %w (grant CAP_NET_ADMIN)", errno)
	}
	if errno := get(c.fd, unix.TCP_QUEUE_SEQ, &c.next); errno != 0 {
		return fmt.Errorf("read its sequence: %w", errno)
	}
	unacked, err := c.snapshot()
	if err != nil {
		return err
	}
	c.stamps = c.info.Options&optionStamps != 0
	c.refused = c.info.Options&(optionECN|optionMicro) != 0
	c.ackBase = c.next - unacked - uint32(c.info.Bytes_acked)
	c.unseen = c.info.Segs_in - c.ingress.count()
	if c.shared {
		c.readWindow()
		if errno := c.leave(); errno != 0 {
			return fmt.Errorf("switch repair mode off: %w", errno)
		}
	}
	c.Refresh()
	return c.err
}

// snapshot reads the state of the connection, and how many bytes are not acknowledged in it.
func (c *Conn) snapshot() (unacked uint32, err error) {
	for {
		var before unix.TCPInfo
		if errno := get(c.fd, unix.TCP_INFO, &before); errno != 0 {
			return 0, fmt.Errorf("read its state: %w", errno)
		}
		n, errno := outstanding(c.fd)
		if errno != 0 {
			return 0, fmt.Errorf("read how much is not acknowledged: %w", errno)
		}
		if errno := get(c.fd, unix.TCP_INFO, &c.info); errno != 0 {
			return 0, fmt.Errorf("read its state: %w", errno)
		}
		if c.info.Bytes_acked == before.Bytes_acked {
			return uint32(n), nil
		}
	}
}

// readRouting reads what the routes of the connection's packets depend on.
func (c *Conn) readRouting() error {
	var socket unix.Stat_t
	if err := unix.Fstat(c.fd, &socket); err != nil {
		return fmt.Errorf("read the owner of the socket: %w", err)
	}
	class := [2]int{unix.IPPROTO_IPV6, unix.IPV6_TCLASS}
	if c.local.Addr().Is4() {
		class = [2]int{unix.IPPROTO_IP, unix.IP_TOS}
	}
	var values [3]int
	for i, o := range [...][2]int{{unix.SOL_SOCKET, unix.SO_MARK}, {unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX}, class} {
		v, err := unix.GetsockoptInt(c.fd, o[0], o[1])
		if err != nil {
			return fmt.Errorf("read option %d of level %d: %w", o[1], o[0], err)
		}
		values[i] = v
	}
	c.routing = Routing{Mark: uint32(values[0]), UID: socket.Uid, Bound: values[1], Class: uint8(values[2])}
	return nil
}

// Local returns the address of this end.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Remote returns the address of the peer.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// FD is readable when the peer has sent something, or the connection has ended.
func (c *Conn) FD() int { return c.fd }

// SetPath sets how segments get to the next hop; nil: not known. Any goroutine may call it. The Path must not change afterwards.
func (c *Conn) SetPath(p *Path) { c.path.Store(p) }

// Err returns why the connection has ended, or nil.
func (c *Conn) Err() error { return c.err }

// RoundTrip returns the shortest round trip so far.
func (c *Conn) RoundTrip() time.Duration { return time.Duration(c.minimum) * time.Microsecond }

// Early returns how many acknowledgements came before the kernel knew what they acknowledge.
func (c *Conn) Early() uint32 { return c.lowered }

// Retransmitted returns how many segments the kernel has sent again.
func (c *Conn) Retransmitted() uint32 { return c.info.Total_retrans }

// Unacknowledged returns how many bytes the peer had not acknowledged when the state was last read.
func (c *Conn) Unacknowledged() uint32 { return c.next - c.unacked }

// enter switches repair mode on. Nothing may be unsent: the kernel would take it for sent.
func (c *Conn) enter() unix.Errno {
	if c.repair {
		return 0
	}
	if errno := set(c.fd, unix.TCP_REPAIR, repairOn); errno != 0 {
		return errno
	}
	if errno := set(c.fd, unix.TCP_REPAIR_QUEUE, queueSend); errno != 0 {
		_ = set(c.fd, unix.TCP_REPAIR, repairOff)
		return errno
	}
	c.repair = true
	return 0
}

// leave switches repair mode off. All bytes in the queue count as sent.
func (c *Conn) leave() unix.Errno {
	if !c.repair {
		return 0
	}
	errno := set(c.fd, unix.TCP_REPAIR, repairOff)
	c.repair = errno != 0
	return errno
}

// fail records why the connection has ended. The first reason counts.
func (c *Conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.ended = true
}

// End makes Refresh say that the connection is not established any more, for a reason. Any goroutine may call it.
func (c *Conn) End(why error) { c.asked.Store(&why) }

// Errors of a connection that has ended.
var (
	// ErrPeerClosed means that the peer has closed the connection.
	ErrPeerClosed = errors.New("the peer has closed the connection")
	// errNotConnected means that the kernel has ended the connection.
	errNotConnected = errors.New("the connection is not established any more")
)

// Close closes the connection. The kernel transmits what is not acknowledged, and the end of the stream.
func (c *Conn) Close() error { return c.close(false) }

// Abort closes the connection with a reset. Nothing that is not sent is transmitted any more.
func (c *Conn) Abort() error { return c.close(true) }

func (c *Conn) close(abort bool) error {
	var errs []error
	if c.cookie != 0 {
		takenOver.remove(c.cookie)
		c.cookie = 0
	}
	if c.fd >= 0 {
		if c.shared && (abort || len(c.owed) > 0) {
			// The peer has bytes of which the kernel does not know. No other process may send others in their place.
			errs = append(errs, c.disconnect())
		}
		// A socket that is closed in repair mode disappears, and the peer hears nothing.
		if errno := c.leave(); errno != 0 {
			errs = append(errs, fmt.Errorf("switch repair mode off: %w", errno))
		}
		if abort && !c.shared {
			errs = append(errs, unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
		}
		errs = append(errs, unix.Close(c.fd))
		c.fd = -1
	}
	c.fail(net.ErrClosed)
	if c.ingress != nil {
		errs = append(errs, c.ingress.close())
		c.ingress = nil
	}
	return errors.Join(errs...)
}

// disconnect resets a connection whose socket others have, too.
func (c *Conn) disconnect() error {
	if err := disconnect(c.fd); err != 0 && err != unix.ENOTCONN {
		return fmt.Errorf("reset the connection: %w", err)
	}
	return nil
}
