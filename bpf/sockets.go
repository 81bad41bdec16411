package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// SetSocket gives the packets of a receive queue to the AF_XDP socket fd, which
// must be bound to that queue. The kernel takes its own reference to the
// socket, and forgets it when the socket is closed; fd stays the caller's.
func (p *Program) SetSocket(queue uint32, fd int) error {
	return p.onSockets(queue, "give queue %d a socket: %w", func(sockets *ebpf.Map) error {
		return sockets.Update(queue, uint32(fd), ebpf.UpdateAny)
	})
}

// ClearSocket leaves the packets of a receive queue to the kernel again. A
// queue without a socket stays as it is.
func (p *Program) ClearSocket(queue uint32) error {
	return p.onSockets(queue, "take the socket of queue %d: %w", func(sockets *ebpf.Map) error {
		if err := sockets.Delete(queue); !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil
	})
}

// onSockets runs f on the map of sockets; format takes the queue and the error.
func (p *Program) onSockets(queue uint32, format string, f func(*ebpf.Map) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.checkQueue(queue)
	if err == nil {
		err = f(p.maps.sockets)
	}
	if err != nil {
		return fmt.Errorf(format, queue, err)
	}
	return nil
}

func (p *Program) checkQueue(queue uint32) error {
	if p.program == nil {
		return ErrClosed
	}
	if uint64(queue) >= uint64(p.config.Queues) {
		return fmt.Errorf("the program was loaded for %d queues", p.config.Queues)
	}
	return nil
}
