package xdp

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// Peek is the frame that Recv gives when it has given i others, and whether it is there already. Its bytes may be read, but it is the
// kernel's until Recv gives it: for packets that are worth a look before there is time for all that goes with
// receiving.
func (p *Port) Peek(i int) (f umem.Frame, ok bool) {
	rx := &p.rings.rx
	if p.closed || p.limits.Supply == 0 || rx.producer.Load()-rx.next <= uint32(i) {
		return f, false
	}
	f = rx.at(uint32(i))
	f.Options &= umem.More
	return f, true
}

// SendNow is Send of a packet of one frame, and Kick, in copy mode: the packet leaves first, and is counted afterwards. It reports whether it was
// sent, which it is not where there is no room for it, or Send would refuse it, or there is no copy mode, or memory is lent; the error is Kick's.
func (p *Port) SendNow(f umem.Frame) (sent bool, err error) {
	tx := &p.rings.tx
	if p.closed || p.zeroCopy || p.lent || p.sent >= uint32(p.limits.Send) || tx.room(1) == 0 || f.Len < etherHeader || f.Addr&(p.chunk-1)+uint64(f.Len) > p.chunk {
		return false, nil
	}
	f.Options = 0
	tx.set(0, f)
	tx.publish(1)
	errno := p.syscall(unix.SYS_SENDTO)
	p.left(f)
	if errno == unix.EAGAIN || errno == unix.EBUSY {
		return true, p.Kick()
	}
	return true, p.wakeError(errno)
}

// left counts a frame that SendNow has sent.
func (p *Port) left(f umem.Frame) {
	one := [1]umem.Frame{f}
	p.worker.PassTo(p.held, one[:])
	if p.due != nil {
		p.expect(one[:])
	}
	p.sent++
	p.counters.sent.add(1, 1, uint64(f.Len))
}
