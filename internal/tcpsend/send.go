package tcpsend

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Refresh reads the state of the connection from the kernel. It reports whether the connection is established.
func (c *Conn) Refresh() bool {
	if c.ended {
		return false
	}
	if c.ingress != nil {
		c.news = c.ingress.count()
	}
	if errno := get(c.fd, unix.TCP_INFO, &c.info); errno != 0 {
		c.fail(fmt.Errorf("read the state of the connection: %w", errno))
		return false
	}
	if why := c.asked.Load(); why != nil {
		c.fail(*why)
		return false
	}
	if c.info.State != stateConnected {
		c.fail(c.cause())
		return false
	}
	c.notice()
	c.unacked = c.ackBase + uint32(c.info.Bytes_acked)
	c.edge = c.unacked + c.info.Snd_wnd
	c.since = 0
	if c.early && int32(c.unacked-c.behind) >= 0 {
		c.early = false
	}
	if c.shared && c.foreign() {
		c.fail(errWritten)
		return false
	}
	if c.info.Min_rtt > 0 {
		c.minimum = min(c.minimum, c.info.Min_rtt)
	}
	switch {
	case c.repair:
		c.readWindow()
		if c.info.Notsent_bytes > 0 {
			c.push()
		}
	case c.shared && c.info.Bytes_received-c.read > uint64(c.wnd)/4 && c.info.Notsent_bytes == 0:
		if c.enter() == 0 {
			c.readWindow()
			_ = c.leave()
		}
	}
	return true
}

// foreign reports whether the process that has given the connection has written to it: then the kernel has more bytes than
// the Conn has given to it. An acknowledgement after TCP_INFO was read makes it look like fewer, so foreign may notice later.
func (c *Conn) foreign() bool {
	n, errno := outstanding(c.fd)
	return errno == 0 && int32(c.unacked+uint32(n)-c.next) > 0
}

// readWindow reads what the kernel has acknowledged last. The socket is in repair mode. A segment with an older
// acknowledgement is as good, until that is older than the window is long (RFC 5961, 5.2).
func (c *Conn) readWindow() {
	var w window
	if errno := get(c.fd, repairWindow, &w); errno == 0 {
		c.wup, c.wnd = w[windowAcknowledged], w[windowOffered]
	}
	c.read = c.info.Bytes_received
}

// notice finds out whether packets of the peer arrive by another interface than the program's. The program sees a segment
// before the kernel counts it, so the difference of both counts grows only by segments that it has not seen.
func (c *Conn) notice() {
	if c.ingress == nil || c.ingress.link == nil {
		return
	}
	seen := c.ingress.count()
	switch unseen := c.info.Segs_in - seen; {
	case int32(unseen-c.unseen) > 0:
		c.unseen, c.noticed, c.astray = unseen, seen, true
	case c.astray && seen != c.noticed:
		c.astray = false
	}
}

// push makes the kernel take for sent what it has taken and kept back in repair mode, as with tcp_autocorking: setting
// TCP_NODELAY pushes.
func (c *Conn) push() { _ = set(c.fd, unix.TCP_NODELAY, 1) }

// cause finds out why the connection is not established.
func (c *Conn) cause() error {
	const closeWait = 8 // TCP_CLOSE_WAIT
	if code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code != 0 {
		return fmt.Errorf("%w: %w", errNotConnected, unix.Errno(code))
	}
	if c.info.State == closeWait {
		return ErrPeerClosed
	}
	return errNotConnected
}

// HasNews reports whether packets of the peer have arrived since the last Refresh. The kernel processes them a moment
// after that.
func (c *Conn) HasNews() bool { return c.ingress != nil && c.ingress.count() != c.news }

// Guard returns None if a payload of n bytes may leave in a segment of ours. Otherwise it says why not. It reads the
// kernel's state again before it refuses for a reason that may have passed.
func (c *Conn) Guard(n int) Reason {
	why := c.guard(n)
	if why >= Recovery && why != Closed && why != Unbooked {
		if !c.Refresh() {
			return Closed
		}
		why = c.guard(n)
	}
	if why == None && !c.repair && !c.shared {
		if c.enter() != 0 {
			return NoRepair
		}
		c.Refresh()
		why = c.guard(n)
	}
	return why
}

// guard is Guard with the state as it was read last. It errs on the safe side: since then the peer can only have
// acknowledged more.
func (c *Conn) guard(n int) Reason {
	path := c.path.Load()
	switch end := c.next + uint32(n); {
	case c.ended:
		return Closed
	case len(c.owed) > 0:
		return Unbooked
	case c.info.Notsent_bytes > 0:
		return Unsent
	case c.refused:
		return Options
	case c.ingress.link == nil:
		return OldKernel
	case path == nil:
		return NoPath
	case uint32(n) > c.info.Snd_mss || n+c.headers() > path.MTU:
		return TooLong
	case c.stamps && !c.ingress.stamped():
		return NoEcho
	case c.info.Ca_state != congestionOpen:
		return Recovery
	case c.astray:
		return OtherWay
	case c.isEarly():
		return Early
	case int32(end-c.edge) > 0 && c.next == c.unacked:
		return SmallWindow
	case int32(end-c.edge) > 0:
		return Window
	case c.info.Unacked+c.since >= c.info.Snd_cwnd:
		return Congestion
	case c.next-c.unacked+uint32(n) > keptBytes || c.info.Unacked+c.since >= keptSegments:
		return Buffer
	}
	return None
}

// headers returns the length of the headers of IP and TCP.
func (c *Conn) headers() (n int) {
	if n = ipv6Len + tcpLen; c.local.Addr().Is4() {
		n = ipv4Len + tcpLen
	}
	if c.stamps {
		n += stampsLen
	}
	return n
}

// isEarly reports whether a payload is to go the kernel's way since the kernel has missed acknowledgements, which were
// lowered: that payload's is for all before it, too. A burst goes on in segments of ours, but not so long that the
// kernel takes them for lost, and sends one again.
func (c *Conn) isEarly() bool {
	if n := c.ingress.lowered(); n != c.lowered {
		if !c.early {
			c.missed = time.Now()
		}
		c.lowered, c.early, c.behind = n, true, c.next
	}
	return c.early && (2*(c.info.Unacked+c.since) >= c.info.Snd_cwnd || time.Since(c.missed) > earlyTime)
}

// earlyTime is less than the time after which the kernel probes for a loss: two ticks, and two round trips
// (tcp_schedule_loss_probe in net/ipv4/tcp_output.c).
const earlyTime = time.Millisecond

// Build writes the headers of a segment in front of the payload, which is b[Headroom:]. The segment is b[start:]. Guard
// must have returned None since the last payload. The caller transmits the segment at once, and then calls Book. at is
// the time, read after the last call of any method.
func (c *Conn) Build(b []byte, at time.Time) (start int) {
	c.id++
	start = c.write(b, at)
	c.ingress.arm(c.next)
	return start
}

// write writes the headers of the next segment.
func (c *Conn) write(b []byte, at time.Time) (start int) {
	if p := c.path.Load(); p != c.used && p != nil {
		c.template.make(p, c.local, c.remote, c.stamps, c.routing.Class)
		c.used = p
	}
	f := fields{sequence: c.next, acknowledgement: c.wup, window: uint16(min(c.wnd>>c.receiveScale(), 0xffff)), id: c.id}
	if c.stamps {
		f.stamp, f.echo = c.clock.at(at), c.ingress.stamp()
	}
	return c.template.write(b, &f)
}

// Rehearse does what Guard and Build do, so that they are in the caches of the processor. It changes b, and nothing on
// which later payloads depend: an acknowledgement that was lowered is for the next payload to notice.
func (c *Conn) Rehearse(b []byte, at time.Time) {
	lowered, early, missed, behind := c.lowered, c.early, c.missed, c.behind
	if c.guard(len(b)-Headroom) == None {
		c.write(b, at)
	}
	c.lowered, c.early, c.missed, c.behind = lowered, early, missed, behind
}

// receiveScale returns the scale of the windows that this end offers. TCP_INFO has that of the peer in the lower half
// of a byte, and that of this end in the upper half.
func (c *Conn) receiveScale() uint32 { return uint32(scales(&c.info) >> 4) }

// Book gives a payload that has been transmitted to the kernel, which takes it for sent. It reports whether the kernel
// has taken all of it. Settle gives it the rest.
func (c *Conn) Book(payload []byte) bool {
	n := c.book(payload)
	c.owe(payload[n:], false)
	if n < len(payload) {
		return false
	}
	c.ingress.disarm()
	return true
}

// book gives bytes to the kernel, which takes them for sent, and returns how many it has taken.
func (c *Conn) book(b []byte) int {
	if !c.shared {
		return c.give(b)
	}
	if errno := c.enter(); errno != 0 {
		c.fail(fmt.Errorf("switch repair mode on: %w", errno))
		return 0
	}
	n := c.give(b)
	if left, errno := unsent(c.fd); errno == 0 && left > 0 {
		c.push()
	}
	c.readWindow()
	var next uint32
	if errno := get(c.fd, unix.TCP_QUEUE_SEQ, &next); errno == 0 && next != c.next {
		c.fail(errWritten)
	}
	if errno := c.leave(); errno != 0 {
		c.fail(fmt.Errorf("switch repair mode off: %w", errno))
	}
	return n
}

// errWritten means that the process that has given a connection writes to it.
var errWritten = errors.New("the program has written to the connection that it has given")

// give gives bytes to the kernel, and returns how many it has taken.
func (c *Conn) give(b []byte) int {
	n, errno := send(c.fd, b)
	if errno != 0 {
		c.note(errno)
		return 0
	}
	c.next += uint32(n)
	c.since++
	return n
}

// note records an error of send.
func (c *Conn) note(errno unix.Errno) {
	switch errno {
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.EINTR:
		return
	}
	c.fail(fmt.Errorf("%w: %w", errNotConnected, errno))
}

// owe keeps bytes that the kernel has not taken, though all bytes before them. Nothing may be owed yet. plain: nobody has
// transmitted them.
func (c *Conn) owe(rest []byte, plain bool) { c.owed, c.plain = append(c.owed, rest...), plain }

// Settle gives what is owed to the kernel. It reports whether nothing is owed any more.
func (c *Conn) Settle() bool {
	if len(c.owed) == 0 || c.ended {
		return true
	}
	n := 0
	if c.plain {
		n = c.give(c.owed)
	} else {
		n = c.book(c.owed)
	}
	c.owed = c.owed[:copy(c.owed, c.owed[n:])]
	if len(c.owed) > 0 {
		return false
	}
	c.ingress.disarm()
	return true
}

// Plain sends a payload the kernel's way, and reports whether the kernel has taken it, or gets what is left of it by
// Settle. If not, the kernel has no room, or the connection has ended. Nothing may be owed.
func (c *Conn) Plain(payload []byte) bool {
	if errno := c.leave(); errno != 0 {
		c.fail(fmt.Errorf("switch repair mode off: %w", errno))
		return false
	}
	n := c.give(payload)
	if n > 0 {
		c.owe(payload[n:], true)
	}
	if left, errno := unsent(c.fd); errno == 0 {
		c.info.Notsent_bytes = uint32(left)
	}
	return n > 0
}

// Waiting reports how many bytes of the peer wait.
func (c *Conn) Waiting() int {
	if c.fd < 0 {
		return 0
	}
	n, errno := waiting(c.fd)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// Receive takes bytes of the peer. 0: nothing waits, or the connection has ended. Repair mode is off meanwhile, in
// which the kernel gives nothing out.
func (c *Conn) Receive(b []byte) int {
	if c.fd < 0 {
		return 0
	}
	before := c.repair
	if errno := c.leave(); errno != 0 {
		c.fail(fmt.Errorf("switch repair mode off: %w", errno))
		return 0
	}
	n, errno := receive(c.fd, b)
	switch {
	case errno == 0 && n == 0:
		c.fail(ErrPeerClosed)
	case errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR:
		c.fail(fmt.Errorf("%w: %w", errNotConnected, errno))
	}
	if before && !c.ended {
		if left, errno := unsent(c.fd); errno == 0 && left == 0 {
			_ = c.enter() // else Guard tries again
		}
	}
	return n
}

// Unsent returns how many bytes have been taken and may not have been transmitted yet.
func (c *Conn) Unsent() int {
	if c.fd < 0 {
		return 0
	}
	n, errno := unsent(c.fd)
	if errno != 0 {
		return 0
	}
	return int(n) + len(c.owed)
}
