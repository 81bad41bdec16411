package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Counters returns what became of all packets since [Load]: the sums over all
// CPUs. Packets that arrive meanwhile may be in it or not.
func (p *Program) Counters() (Counters, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var c Counters
	if p.program == nil {
		return c, fmt.Errorf("read counters: %w", ErrClosed)
	}
	for v := range c {
		var err error
		if c[v], err = p.sum(p.maps.counters, uint32(v)); err != nil {
			return Counters{}, fmt.Errorf("read the counter of %s packets: %w", Verdict(v), err)
		}
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
