package bpf

import (
	"fmt"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Counters returns the verdicts of all packets since [Load]: the sums over all CPUs and seats.
// Packets that arrive during the call may be counted or not.
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

// ownCounters is the name of the map of a user's program whose counters are reported.
const ownCounters = "counters"

// mostCounters is how many counters a user's program may show.
const mostCounters = 64

// OwnCounter is a counter that the user's program keeps.
type OwnCounter struct {
	Name  string // of the constant of the enum that is the map's key, or the index without one
	Value uint64
}

// checkCounters checks the map whose values are reported.
func (o *Object) checkCounters(m *ebpf.MapSpec) error {
	array := m.Type == ebpf.Array || m.Type == ebpf.PerCPUArray
	if !array || m.KeySize != 4 || m.ValueSize != 8 || m.MaxEntries > mostCounters {
		return o.wrong("its map %s is shown in the status, so it must be an array, or one per CPU, of at most %d values of 8 bytes", ownCounters, mostCounters)
	}
	return nil
}

// OwnCounters returns the counters of the user's program, summed over all CPUs, since the program
// came into force. They are in its map "counters", if it has one.
func (p *Program) OwnCounters() ([]OwnCounter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		return nil, fmt.Errorf("read the counters of the filter's object: %w", ErrClosed)
	}
	if p.own == nil {
		return nil, nil
	}
	all := make([]OwnCounter, p.own.MaxEntries())
	for i := range all {
		n, err := p.sumOwn(uint32(i))
		if err != nil {
			return nil, fmt.Errorf("read counter %d of the filter's object: %w", i, err)
		}
		all[i] = OwnCounter{p.ownNames[i], n}
	}
	return all, nil
}

func (p *Program) sumOwn(index uint32) (sum uint64, err error) {
	if p.own.Type() == ebpf.Array {
		err = p.own.Lookup(index, &sum)
		return sum, err
	}
	values := make([]uint64, len(p.buffer))
	err = p.own.Lookup(index, values)
	for _, v := range values {
		sum += v
	}
	return sum, err
}

// counterNames returns the names of the counters: the constants of the enum that is the key, or
// else their indices.
func counterNames(m *ebpf.MapSpec) []string {
	names := make([]string, m.MaxEntries)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	if m.Key == nil {
		return names
	}
	enum, ok := btf.UnderlyingType(m.Key).(*btf.Enum)
	if !ok {
		return names
	}
	for _, v := range enum.Values {
		if v.Value < uint64(len(names)) {
			names[v.Value] = v.Name
		}
	}
	return names
}
