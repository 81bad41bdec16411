package umem

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// registrations are the devices that have the region's memory registered.
type registrations struct {
	mu     sync.Mutex
	live   map[*Registration]string
	closed bool
}

// Registration is a device's hold on the region's memory. Take it after the device has accepted the
// memory, and release it after the device has released the memory.
type Registration struct{ set *registrations }

// Register records that device has the region's memory registered. The name is for people ("AF_XDP
// UMEM of eth0"). Any goroutine may call it.
func (r *Region) Register(device string) *Registration {
	g := &Registration{set: &r.registered}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	if g.set.live == nil {
		g.set.live = make(map[*Registration]string)
	}
	g.set.live[g] = device
	return g
}

// Release records that the device has released the memory. A second call does nothing, as does
// releasing a nil Registration.
func (g *Registration) Release() {
	if g == nil {
		return
	}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	delete(g.set.live, g)
}

// Registered lists the devices that have the region registered, sorted.
func (r *Region) Registered() []string {
	r.registered.mu.Lock()
	defer r.registered.mu.Unlock()
	return r.registered.names()
}

// names returns the devices, sorted. The caller holds the lock.
func (s *registrations) names() []string {
	return slices.Sorted(maps.Values(s.live))
}

// close marks the region as closed unless a device has it registered. already says whether it was
// closed before.
func (s *registrations) close() (already bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if names := s.names(); len(names) > 0 {
		return false, fmt.Errorf("close region: still registered with %s; close those first", strings.Join(names, ", "))
	}
	already, s.closed = s.closed, true
	return already, nil
}
