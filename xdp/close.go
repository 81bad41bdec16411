package xdp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Close stops the port and gives every frame that it holds back to the region. Received packets
// that Recv has not returned are lost. No goroutine may wait on FD during Close.
//
// Why the frames are free: the socket's close returns after the kernel has removed it from its queue and
// every processor has left the code that fills frames (xsk_unbind_dev of net/xdp/xsk.c and the
// synchronize_net in it). So in copy mode nothing writes to them any longer. With zero copy the card has
// frames until the kernel has told its driver, some time later (xp_clear_dev in xsk_buff_pool.c). The same
// holds for sent frames that a device reads in place. Close therefore waits until the queue can be bound
// again, which the kernel allows only after that. If it takes longer than Config.BindTimeout, the frames
// stay with the port, the error says so, and the caller may call Close again.
func (p *Port) Close() error {
	if p.closed {
		return p.settle()
	}
	if done, err := p.leave(); done {
		p.iface.portClosed()
		return err
	}
	p.settles = p.drain() || p.iface.granted.ZeroCopy
	return errors.Join(p.shut(), p.settle())
}

// leave closes the port if other Interfaces share its queue, and reports whether that is so.
func (p *Port) leave() (done bool, err error) {
	c := p.iface.shared
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.hasCompany() {
		return false, nil
	}
	return true, p.closeBeside()
}

// drainTime is how long Close waits for the device to finish sending.
const drainTime = 50 * time.Millisecond

// drain makes the kernel finish what was sent, and reports whether some of it may still be in flight. If
// the interface is down or gone, the kernel has not taken some frames. It will not take them once the
// socket is closed. The completion ring is not consumed: the frames go back to the region with the others.
func (p *Port) drain() (left bool) {
	if p.limits.Send == 0 {
		return false
	}
	under := func() uint32 {
		return p.sent - uint32(len(p.failed)) - p.rings.completion.waiting(p.sent)
	}
	for end := time.Now().Add(drainTime); under() > 0; time.Sleep(100 * time.Microsecond) {
		if p.Kick() != nil || time.Now().After(end) {
			return under() > p.rings.tx.left()
		}
	}
	return false
}

// shut removes the socket from the program and closes it. It takes the last statistics when no
// packet can be on its way to the socket.
func (p *Port) shut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	if program := p.iface.program; program != nil && !p.iface.stopped.Load() {
		errs = append(errs, program.ClearSocketOf(p.iface.seat, p.socket.queue))
		barrier()
	}
	final, err := p.stats()
	p.final, p.closed = final, true
	errs = append(errs, err, p.socket.close())
	if p.fillAccount != nil && p.fillAccount.anchor != p.socket {
		errs = append(errs, p.fillAccount.anchor.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", p.held.Name(), err)
	}
	return nil
}

// settle gives the frames to the pool once nothing can access them.
func (p *Port) settle() error {
	if p.settled {
		return nil
	}
	if p.settles {
		if err := p.probe.wait(p.iface.device.index, p.socket.queue, p.iface.config.BindTimeout); err != nil {
			return fmt.Errorf("close %s: %w", p.held.Name(), err)
		}
	}
	p.settled = true
	p.held.Close()
	p.iface.portClosed()
	return p.probe.close()
}

// whileOpen calls f unless the port is closed. Close waits until f returns.
func (p *Port) whileOpen(f func(*Port) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	return f(p)
}

// barrier waits until every processor has left the packet-handling code that it was in
// (MEMBARRIER_CMD_GLOBAL is synchronize_rcu). On a kernel without it only the statistics of the
// last moment are inexact.
func barrier() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of include/uapi/linux/membarrier.h
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}

// portClosed releases the registration with the last port.
func (i *Interface) portClosed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open--; i.open == 0 {
		i.registration.Release()
	}
}

// Close closes ports that are still open, detaches the program and releases everything. The ports'
// threads must have stopped, or closed them. After an error of a port the caller may call it again;
// otherwise a second call does nothing.
func (i *Interface) Close() error {
	i.closing.Lock()
	defer i.closing.Unlock()
	errs := []error{i.Stop()}
	for _, p := range i.ports {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, i.closeRest())...)
}

// closeRest closes what the ports share, unless one of them is still open.
func (i *Interface) closeRest() (err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open > 0 || i.closed {
		return nil
	}
	i.closed = true
	if i.device == nil {
		return nil
	}
	i.final, err = i.ledger()
	if unsent, e := i.countUnsent(); e == nil { // otherwise Ledger has returned the error, or the interface is gone
		i.unsent = unsent
	}
	last, left := i.leave()
	if err = errors.Join(err, left); !last {
		return err
	}
	if i.program != nil {
		err = errors.Join(err, i.program.Close())
	}
	return errors.Join(err, i.device.close())
}
