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

// Registration is a device's hold on the region's memory. It is taken after the
// device accepted the memory and released after the device let go of it.
type Registration struct{ set *registrations }

// Register notes that device, named for people ("AF_XDP UMEM of eth0"), has the
// region's memory registered. It may be called from any goroutine.
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

// Release says that the device let go. Releasing again does nothing, as does
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

// names are the devices, sorted; the lock is held.
func (s *registrations) names() []string {
	return slices.Sorted(maps.Values(s.live))
}

// close marks the region as closed unless a device has it registered. It says
// whether it was closed already.
func (s *registrations) close() (already bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if names := s.names(); len(names) > 0 {
		return false, fmt.Errorf("close region: still registered with %s; close those first", strings.Join(names, ", "))
	}
	already, s.closed = s.closed, true
	return already, nil
}
