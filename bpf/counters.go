package bpf

import "fmt"

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
		if err := p.maps.counters.Lookup(uint32(v), p.buffer); err != nil {
			return Counters{}, fmt.Errorf("read the counter of %s packets: %w", Verdict(v), err)
		}
		for _, k := range p.buffer {
			c[v].Packets += k.Packets
			c[v].Bytes += k.Bytes
		}
	}
	return c, nil
}
