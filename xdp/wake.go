package xdp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// wake is how a port wakes the kernel.
type wake struct {
	always   bool // no need-wakeup flag to go by
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

// Kick wakes the kernel where it asked to be, and to send in copy mode, where
// only this system call sends. Supply and Send have published their frames
// already. Errors match ErrInterfaceDown or ErrInterfaceGone; what the kernel has
// no room for just now is no error and is tried again by the next Kick.
func (p *Port) Kick() error {
	if p.closed {
		return nil
	}
	if p.zeroCopy { // else no flag ever changes
		p.barrier.Store(0) // what was published is seen before the flags are read
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

// nudge wakes a driver whose fill ring had run empty and that may not have asked
// for a wake-up: one that makes its rings anew then, as at a reset, finds no frame,
// gets no packet, and so never looks again (igb does). recvfrom would not reach it
// without the flag, poll does (xsk_poll in net/xdp/xsk.c).
func (p *Port) nudge() {
	p.wake.poll[0] = unix.PollFd{Fd: int32(p.socket.fd)}
	p.counters.wakeups.add(1)
	_, err := unix.Poll(p.wake.poll[:], 0)
	p.starved = err != nil
}

// drive has the kernel send. Copy mode sends at most 32 packets a call on kernels
// without XDP_MAX_TX_SKB_BUDGET and answers EAGAIN, and ends the call with EBUSY at a
// packet that the device drops, which is completed all the same. So the call is
// repeated while it gets somewhere.
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

// progress changes when the kernel takes or completes a frame. After EBUSY only
// the latter shows.
func (p *Port) progress() [2]uint32 {
	return [2]uint32{p.rings.tx.consumer.Load(), p.rings.completion.producer.Load()}
}

// syscall is sendto or recvfrom with nothing in it. It does not block. A short one is hidden from the Go scheduler, which else looks
// every 20 µs after the processor that the thread has, as long as such calls go on.
func (p *Port) syscall(number uintptr) (errno unix.Errno) {
	p.counters.wakeups.add(1)
	if number == unix.SYS_SENDTO && p.rings.tx.left() <= shortCall {
		_, _, errno = unix.RawSyscall6(number, uintptr(p.socket.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	} else {
		_, _, errno = unix.Syscall6(number, uintptr(p.socket.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	}
	return errno
}

// shortCall is how many frames a system call may send that takes some tens of microseconds.
const shortCall = 64

// wakeError sorts what xsk_sendmsg and xsk_recvmsg of net/xdp/xsk.c answer. EBUSY is
// a packet the device dropped, and counted; EAGAIN and ENOBUFS are a full device;
// ENXIO is what an unregistered interface leaves.
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
