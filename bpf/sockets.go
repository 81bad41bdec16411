package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// SetSocket gives the packets of a receive queue to the AF_XDP socket fd, which
// must be bound to that queue. The kernel takes its own reference to the
// socket, and forgets it when the socket is closed; fd stays the caller's.
func (p *Program) SetSocket(queue uint32, fd int) error { return p.SetSocketOf(0, queue, fd) }

// SetSocketOf is SetSocket for the packets of a seat.
func (p *Program) SetSocketOf(seat int, queue uint32, fd int) error {
	return p.onSockets(seat, queue, "give queue %d a socket: %w", func(sockets *ebpf.Map) error {
		return sockets.Update(p.place(seat, queue), uint32(fd), ebpf.UpdateAny)
	})
}

// ClearSocket leaves the packets of a receive queue to the kernel again. A
// queue without a socket stays as it is.
func (p *Program) ClearSocket(queue uint32) error { return p.ClearSocketOf(0, queue) }

// ClearSocketOf is ClearSocket for the packets of a seat.
func (p *Program) ClearSocketOf(seat int, queue uint32) error {
	return p.onSockets(seat, queue, "take the socket of queue %d: %w", func(sockets *ebpf.Map) error {
		if err := sockets.Delete(p.place(seat, queue)); !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil
	})
}

// onSockets runs f on the map of sockets; format takes the queue and the error.
func (p *Program) onSockets(seat int, queue uint32, format string, f func(*ebpf.Map) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.checkQueue(seat, queue)
	if err == nil {
		err = f(p.maps.sockets)
	}
	if err != nil {
		return fmt.Errorf(format, queue, err)
	}
	return nil
}

// place is where in the map of sockets the one of a queue is.
func (p *Program) place(seat int, queue uint32) uint32 { return uint32(seat*p.config.Queues) + queue }

func (p *Program) checkQueue(seat int, queue uint32) error {
	if p.program == nil {
		return ErrClosed
	}
	if seat < 0 || seat >= Seats {
		return fmt.Errorf("the program has no seat %d", seat)
	}
	if uint64(queue) >= uint64(p.config.Queues) {
		return fmt.Errorf("the program was loaded for %d queues", p.config.Queues)
	}
	return nil
}
