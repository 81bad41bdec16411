package mirror

import "fmt"

// Counters count the copies that were lost since Open.
type Counters struct {
	// Failed counts packets for whose copy the kernel had no memory or no queue. One of them is a packet as
	// the host has it, which may be as long as many packets of the MTU.
	Failed uint64
	// Full counts copies for which the pair's ring was full, or that were longer than the MTU when the mirror
	// was opened.
	Full uint64
}

// Counters reads the counters. For a closed mirror it returns the last values.
func (m *Mirror) Counters() (Counters, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.counters, nil
	}
	err := m.count()
	return m.counters, err
}

// count reads the counters that can be read.
func (m *Mirror) count() error {
	var words [directions]uint64
	if err := m.failed.Lookup(uint32(0), &words); err != nil {
		return fmt.Errorf("read the counters of the mirror of %s: %w", m.name, err)
	}
	m.counters.Failed = 0
	for _, n := range words {
		m.counters.Failed += n
	}
	link, err := m.handle.LinkByIndex(m.pair.near)
	if err != nil {
		return fmt.Errorf("mirror of %s: %w", m.name, linkError(err))
	}
	if s := link.Attrs().Statistics; s != nil {
		m.counters.Full = s.TxDropped
	}
	return nil
}
