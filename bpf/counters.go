package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Counters returns what became of all packets since [Load]: the sums over all
// CPUs and seats. Packets that arrive meanwhile may be in it or not.
func (p *Program) Counters() (Counters, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var c Counters
	if p.program == nil {
		return c, fmt.Errorf("read counters: %w", ErrClosed)
	}
	for seat := range Seats {
		one, err := p.count(seat)
		if err != nil {
			return Counters{}, err
		}
		c.add(one)
	}
	return c, nil
}

// sum adds up a counter over all CPUs; p.mu is held.
func (p *Program) sum(of *ebpf.Map, index uint32) (c Counter, err error) {
	if err := of.Lookup(index, p.buffer); err != nil {
		return c, err
	}
	for _, k := range p.buffer {
		c.Packets += k.Packets
		c.Bytes += k.Bytes
	}
	return c, nil
}
