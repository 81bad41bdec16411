package xdp

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/prefetch"
	"github.com/unifiedd/unifiedd/umem"
)

// Port is the umem.Port of one queue. Its verbs belong to the thread of its worker's Book. For the
// kernel's side see net/xdp/xsk.c and xsk_queue.h.
type Port struct {
	iface  *Interface
	worker *umem.Holder // holds the frames outside the port
	held   *umem.Holder // holds the frames with the kernel
	region *umem.Region
	limits umem.Limits
	socket *socket
	rings  *rings // the socket's rings; empty after Close
	clock  clock
	times  sendTimes
	wake   wake

	barrier atomic.Uint32 // a store to it orders memory accesses

	most          uint32       // largest number of frames supplied and not received
	supplied      uint32       // frames supplied and not received
	sent          uint32       // frames sent, or refused, and not reaped; a gathered packet counts its parts
	failed        []umem.Frame // refused by Send; Reap returns them
	due           []uint8      // for each frame, descriptors that it waits for; nil without Config.Gather
	inside        bool         // the last received frame continues
	zeroCopy      bool         // the card fills frames itself
	starved       bool         // the fill ring was empty when frames were supplied
	reserve       uint32       // frames that the kernel must keep, see suit; 0: none
	reserved      bool         // the kernel has the reserve
	loaned        bool         // sent memory stays with the port until Return
	unaligned     bool         // it may lie across chunks
	extents       uint64       // where extents begin
	extentBytes   uint64       // bytes of all extents
	chunk         uint64       // bytes of a frame, or the largest length of one descriptor
	rxOffset      uint64       // offset in a frame where a packet begins
	txMetadataLen uint64       // bytes in front of a sent packet that must be in its frame, too

	fillAccount *fillAccount // the shared fill ring; nil if the port has always been alone

	coming atomic.Uint64 // probable place of the next packet, see notePrefetch

	counters counters

	mu      sync.Mutex // guards closing against Stats; the methods of umem.Port do not take it
	closed  bool
	final   Stats  // the Stats after Close
	probe   *probe // reports when the queue is free
	settles bool   // the device may use frames for a while after Close
	settled bool   // all frames have been returned
}

var _ umem.Port = (*Port)(nil)

// Queue is the number of the receive queue.
func (p *Port) Queue() uint32 { return p.socket.queue }

// Limits returns what the port can take. Supply and Send count frames until they are received and reaped.
func (p *Port) Limits() umem.Limits { return p.limits }

// FD polls readable when Recv has frames. The kernel has no event for frames to be reaped. After
// Close it is -1.
func (p *Port) FD() int {
	if p.closed {
		return -1
	}
	return p.socket.fd
}

// Supply gives empty frames to the driver. Only the frame that contains each view matters: the packet
// lands at the shape's offset, and the driver may write the umem.PacketHeadroom bytes before it
// (virtio_net has its header there). An extent cannot receive packets, and ends the batch.
func (p *Port) Supply(empty []umem.Frame) int {
	if p.closed {
		return 0
	}
	n := min(p.most-p.supplied, uint32(len(empty)))
	if p.fillAccount != nil {
		return p.supplyTogether(empty[:n])
	}
	n = p.rings.fill.room(n)
	for i := range n {
		addr := empty[i].Addr
		if addr-p.extents < p.extentBytes {
			n = i
			break
		}
		p.rings.fill.set(i, addr&^(p.chunk-1))
	}
	if n == 0 {
		return 0
	}
	p.worker.PassTo(p.held, empty[:n])
	p.starved = p.starved || p.zeroCopy && !p.rings.fill.pending()
	p.supplied += n
	p.reserved = p.reserved || p.reserve > 0 && p.supplied >= p.reserve
	p.rings.fill.publish(n)
	p.notePrefetch()
	return int(n)
}

// Recv returns packets. Addr is the packet's first byte, Len its bytes in this frame. Side.Stamp is
// when the packet arrived, in nanoseconds of Side.Clock, and Side.Queue the queue. Every frame has
// all three set. With Config.Unstamped only Side.Queue is set.
func (p *Port) Recv(dst []umem.Frame) int {
	if p.closed || p.limits.Supply == 0 {
		return 0
	}
	n := p.rings.rx.waiting(min(uint32(min(len(dst), maxBatch)), p.spare()))
	if n == 0 {
		return 0
	}
	if p.rings.fill.free() < n {
		p.rings.fill.look() // Supply follows: both indices cross from the kernel's CPU at once
	}
	dst = dst[:n]
	for i := range dst {
		dst[i] = p.rings.rx.at(uint32(i))
		dst[i].Options &= umem.More
	}
	if n <= fewPackets {
		p.fetch(dst)
	}
	p.rings.rx.release(n)
	p.notePrefetch()
	p.supplied -= n
	p.held.PassTo(p.worker, dst)
	p.note(dst)
	return int(n)
}

// fewPackets is how many frames Recv fetches at once. Who receives more works on one while others come.
const fewPackets = 4

// fetch brings the beginnings of packets, with the times before them, into the cache of this processor, all at the same
// time. Another processor has just written them.
func (p *Port) fetch(fs []umem.Frame) {
	for i := range fs {
		prefetch.Begin(&p.region.At(fs[i].Addr-metaBytes, metaBytes)[0])
	}
}

// maxBatch keeps slice lengths within a ring index.
const maxBatch = 1 << 30

// note fills the Side of received frames, and counts them.
func (p *Port) note(dst []umem.Frame) {
	precise := p.clock.batch(p.iface)
	packets, bytes, card := uint64(0), uint64(0), uint64(0)
	stamp := p.clock.stamp
	for i := range dst {
		if precise && !p.inside {
			stamp = p.clock.read(p.region, dst[i].Addr)
			card += uint64(stamp.by)
		}
		side := p.region.Side(dst[i])
		side.Queue = uint16(p.socket.queue)
		if !p.clock.off {
			side.Stamp, side.Clock = stamp.at, stamp.by
		}
		bytes += uint64(dst[i].Len)
		p.inside = dst[i].Continues()
		if !p.inside {
			packets++
		}
	}
	p.clock.stamp = stamp
	p.counters.received.add(packets, uint64(len(dst)), bytes)
	if card > 0 {
		p.counters.stamped.Add(card)
	}
}

// Send gives packets to the driver, each a frame or a chain of frames. A packet that the kernel
// would not accept returns from Reap with Failed set: EMSGSIZE if it is longer than Limits say,
// EINVAL if it is shorter than an Ethernet header or leaves a frame.
func (p *Port) Send(full []umem.Frame) int {
	if p.closed {
		return 0
	}
	room := p.rings.tx.room(min(uint32(p.limits.Send)-p.sent, uint32(len(full))))
	taken, queued, packets, bytes := uint32(0), uint32(0), uint64(0), uint64(0)
	for {
		message, length := p.next(full[taken:room])
		if message == nil {
			break
		}
		taken += uint32(len(message))
		if errno := p.refuse(message, length); errno != 0 {
			p.fail(message, errno)
			continue
		}
		for i := range message {
			f := message[i]
			f.Options &= umem.More
			if i == 0 {
				f.Options |= p.ask(f)
			}
			p.rings.tx.set(queued, f)
			queued++
		}
		if p.due != nil {
			p.expect(message)
		}
		packets++
		bytes += length
	}
	if taken == 0 {
		return 0
	}
	if !p.loaned {
		p.worker.PassTo(p.held, full[:taken])
	}
	p.sent += taken
	p.rings.tx.publish(queued)
	p.counters.sent.add(packets, uint64(queued), bytes)
	return int(taken)
}

// next cuts off the first whole message and sums its bytes. It returns nil if there is none.
func (p *Port) next(full []umem.Frame) (message []umem.Frame, length uint64) {
	for i := range full {
		length += uint64(full[i].Len)
		if !full[i].Continues() {
			return full[:i+1], length
		}
	}
	return nil, 0
}

// refuse returns why the kernel would not accept a message, zero if it would. The kernel counts a
// descriptor that it does not accept (xp_aligned_validate_desc in net/xdp/xsk_queue.h) and, except
// for newer kernels, never completes it, so none is passed to it.
func (p *Port) refuse(message []umem.Frame, length uint64) unix.Errno {
	if len(message) > p.limits.Frames || length > p.limits.Message {
		return unix.EMSGSIZE
	}
	if message[0].Len < etherHeader {
		return unix.EINVAL
	}
	for i := range message {
		if !p.within(message[i]) {
			return unix.EINVAL
		}
	}
	return 0
}

// within reports whether the kernel accepts a descriptor of these bytes: inside a chunk, or, if the
// port may send from anywhere, at most a chunk's length anywhere in the region.
func (p *Port) within(f umem.Frame) bool {
	if p.unaligned {
		return f.Len > 0 && uint64(f.Len) <= p.chunk && f.Addr <= p.region.Size() && uint64(f.Len) <= p.region.Size()-f.Addr
	}
	at := f.Addr & (p.chunk - 1)
	return f.Len > 0 && at >= p.txMetadataLen && at+uint64(f.Len) <= p.chunk
}

// etherHeader is the shortest packet that devices accept: ETH_HLEN.
const etherHeader = 14

// fail keeps refused frames for Reap. There is room: failed frames count as sent.
func (p *Port) fail(message []umem.Frame, errno unix.Errno) {
	for i := range message {
		p.failed = append(p.failed, message[i].WithError(errno))
	}
	p.counters.refused.Add(uint64(len(message)))
}

// Reap returns sent frames. The kernel returns only their addresses, so Len is zero except for
// frames that failed.
func (p *Port) Reap(dst []umem.Frame) int {
	if p.closed || p.limits.Send == 0 {
		return 0
	}
	n := p.reapFailed(dst)
	if p.due != nil {
		n += p.reapGathered(dst[n:])
	} else {
		n += p.reapDone(dst[n:])
	}
	if n > 0 && !p.loaned {
		p.held.PassTo(p.worker, dst[:n])
	}
	return n
}

func (p *Port) reapFailed(dst []umem.Frame) int {
	if len(p.failed) == 0 {
		return 0
	}
	n := copy(dst, p.failed)
	p.failed = p.failed[:copy(p.failed, p.failed[n:])]
	p.sent -= uint32(n)
	return n
}

func (p *Port) reapDone(dst []umem.Frame) int {
	m := p.rings.completion.waiting(uint32(min(len(dst), maxBatch)))
	for i := range m {
		dst[i] = umem.Frame{Addr: p.rings.completion.at(i)}
	}
	if m > 0 {
		p.completed(m)
	}
	return int(m)
}

// Lend lends memory that the worker holds, frames or extents, to the port. Send may then send any
// bytes of it, any number of times. It stays with the port until Return. It requires Config.Lent.
func (p *Port) Lend(fs []umem.Frame) { p.worker.PassTo(p.held, fs) }

// Return takes back lent memory. The caller must have reaped a frame for each one sent from it:
// Send counts frames and Reap returns their addresses as usual, but their owner does not change.
// For an odd address Reap may return the even one before it: Linux 6.18 uses that bit for something
// else (xsk_skb_destructor_set_addr in net/xdp/xsk.c).
func (p *Port) Return(fs []umem.Frame) { p.held.PassTo(p.worker, fs) }

// chunkUnaligned is the largest length of a descriptor that may begin anywhere: a page, the kernel's
// largest chunk (xdp_umem_reg in net/xdp/xdp_umem.c). For received packets it would decide where they land.
const chunkUnaligned = 4096

// chunk returns the chunk size with which the kernel divides the region.
func (c *Config) chunk() uint32 {
	if c.Shape.Unaligned {
		return chunkUnaligned
	}
	return c.region().FrameSize()
}

// wake is how a port wakes the kernel.
type wake struct {
	always   bool // there is no need-wakeup flag
	busyPoll bool // every Kick runs the driver's receive routine
	down     error
	gone     error
	poll     [1]unix.PollFd
}

func newWake(c *Config, queue uint32) wake {
	at := func(err error) error { return fmt.Errorf("%s queue %d: %w", c.Interface, queue, err) }
	return wake{
		always:   c.AlwaysWake,
		busyPoll: c.BusyPoll.Time != 0,
		down:     at(ErrInterfaceDown),
		gone:     at(ErrInterfaceGone),
	}
}

// Kick wakes the kernel if the kernel asked for that. It also makes it send in copy mode, where
// only this system call sends. Supply and Send have published their frames already. Errors match
// ErrInterfaceDown or ErrInterfaceGone. If the kernel has no room at the moment, Kick returns no
// error, and the next Kick tries again.
func (p *Port) Kick() error {
	if p.closed {
		return nil
	}
	if p.zeroCopy { // otherwise no flag ever changes
		p.barrier.Store(0) // the kernel sees what was published before the flags are read
	}
	if p.limits.Send > 0 && p.rings.tx.pending() && (p.wake.always || p.rings.tx.needsWakeup()) {
		if err := p.drive(); err != nil {
			return err
		}
	}
	if p.starved {
		p.nudge()
	}
	if p.limits.Supply > 0 && (p.wake.busyPoll || p.rings.fill.needsWakeup()) {
		return p.wakeError(p.syscall(unix.SYS_RECVFROM))
	}
	return nil
}

// nudge wakes a driver whose fill ring was empty and that may not have asked for a wake-up. A
// driver that makes its rings again at that time, as at a reset, finds no frame, gets no packet,
// and so never checks again (igb does). Without the flag recvfrom would not reach the driver, but
// poll does (xsk_poll in net/xdp/xsk.c).
func (p *Port) nudge() {
	p.wake.poll[0] = unix.PollFd{Fd: int32(p.socket.fd)}
	p.counters.wakeups.Add(1)
	_, err := unix.Poll(p.wake.poll[:], 0)
	p.starved = err != nil
}

// drive makes the kernel send. In copy mode kernels without XDP_MAX_TX_SKB_BUDGET send at most 32
// packets a call and answer EAGAIN. If the device drops a packet, the call ends with EBUSY, and the
// packet completes all the same. So drive repeats the call while it makes progress.
func (p *Port) drive() error {
	for {
		before := p.progress()
		errno := p.syscall(unix.SYS_SENDTO)
		if errno != unix.EAGAIN && errno != unix.EBUSY {
			return p.wakeError(errno)
		}
		if p.progress() == before || !p.rings.tx.pending() {
			return nil
		}
	}
}

// progress changes when the kernel takes or completes a frame. After EBUSY only the second number changes.
func (p *Port) progress() [2]uint32 {
	return [2]uint32{p.rings.tx.consumer.Load(), p.rings.completion.producer.Load()}
}

// syscall calls sendto or recvfrom without data. It does not block. A short call is hidden from the
// Go scheduler, which would otherwise check every 20 µs on the thread's processor, as long as such
// calls continue.
func (p *Port) syscall(number uintptr) (errno unix.Errno) {
	p.counters.wakeups.Add(1)
	if number == unix.SYS_SENDTO && p.rings.tx.left() <= shortCall {
		_, _, errno = unix.RawSyscall6(number, uintptr(p.socket.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	} else {
		_, _, errno = unix.Syscall6(number, uintptr(p.socket.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	}
	return errno
}

// shortCall is how many frames a system call may send within some tens of microseconds.
const shortCall = 64

// wakeError translates the errors of xsk_sendmsg and xsk_recvmsg of net/xdp/xsk.c. EBUSY means that
// the device dropped and counted a packet; EAGAIN and ENOBUFS, that the device is full; ENXIO, that
// the interface was unregistered.
func (p *Port) wakeError(errno unix.Errno) error {
	switch errno {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.ENOMEM, unix.EINTR:
		return nil
	case unix.ENETDOWN:
		return p.wake.down
	case unix.ENXIO, unix.ENODEV:
		return p.wake.gone
	}
	return fmt.Errorf("wake %s queue %d: %w", p.iface.Name(), p.socket.queue, errno)
}
