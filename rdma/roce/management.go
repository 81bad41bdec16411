package roce

import (
	"fmt"
	"sync"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// management is what the device's connection manager counts: that which is open, and those that were.
type management struct {
	mu     sync.Mutex
	read   func() []Counter
	before []Counter
}

// Manage is for a connection manager: the counters are among Counters from then on. They keep their order; nil ends it.
func (d *Device) Manage(read func() []Counter) {
	m := &d.management
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.read = m.sum(), read
}

// sum is what all have counted. The caller has the lock.
func (m *management) sum() []Counter {
	if m.read == nil {
		return m.before
	}
	all := m.read()
	for i := range m.before {
		all[i].Value += m.before[i].Value
	}
	return all
}

func (m *management) counters() []Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum()
}

// Region is the memory that the device uses.
func (d *Device) Region() *umem.Region { return d.config.Region }

// NewManagementQueuePair makes queue pair 1, of datagrams, which connection managers speak with. There is one at a time.
func (d *Device) NewManagementQueuePair(p rdma.ProtectionDomain, c rdma.QueuePairConfig) (rdma.QueuePair, error) {
	dom, ok := p.(*domain)
	if !ok || dom.dev != d || c.Transport != rdma.UD {
		return nil, fmt.Errorf("make queue pair 1 of %v: it is for datagrams, and its protection domain one of this device", d)
	}
	return dom.newQueuePair(c, 1)
}
