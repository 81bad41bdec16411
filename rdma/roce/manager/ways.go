package manager

import (
	"errors"
	"sync"

	"github.com/unifiedd/unifiedd/rdma"
)

// ways are the address handles to peers, which take the network a while to find. Those unused longest end for new ones.
type ways struct {
	domain rdma.ProtectionDomain
	news   func() // is called when one was found, or not
	all    sync.WaitGroup

	mu      sync.Mutex
	known   map[way]*lead
	finding int
	clock   uint64 // of uses
}

// lead is the way to one peer.
type lead struct {
	handle  rdma.AddressHandle
	err     error
	found   chan struct{} // closed when there is one of the above
	pending []datagram    // that wait for it
	sending int           // messages posted and not complete
	used    uint64
}

// Limits of what peers can have us look for.
const (
	maxWays    = 128
	maxFinding = 32
	maxPending = 4 // messages to one of them
)

var errBusy = errors.New("too many ways to peers are being looked for")

// find is the way to a peer, which is looked for where it is not known.
func (s *ways) find(w way) (*lead, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	if l := s.known[w]; l != nil {
		l.used = s.clock
		return l, nil
	}
	if s.finding >= maxFinding || len(s.known) >= maxWays && !s.evict() {
		return nil, errBusy
	}
	l := &lead{found: make(chan struct{}), used: s.clock}
	s.known[w] = l
	s.finding++
	s.all.Go(func() { s.look(w, l) })
	return l, nil
}

// look has the device find the way. One that is not found is forgotten, so that it is looked for anew.
func (s *ways) look(w way, l *lead) {
	handle, err := s.domain.NewAddressHandle(rdma.Address{GID: w.remote, GIDIndex: w.place, Port: 1})
	s.mu.Lock()
	s.finding--
	l.handle, l.err = handle, err
	if err != nil {
		delete(s.known, w)
	}
	s.mu.Unlock()
	close(l.found)
	s.news()
}

// evict ends the way that is unused longest, and says whether there was one. The caller has the lock.
func (s *ways) evict() bool {
	var oldest *lead
	var at way
	for w, l := range s.known {
		if l.handle != nil && l.sending == 0 && len(l.pending) == 0 && (oldest == nil || l.used < oldest.used) {
			oldest, at = l, w
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.known, at)
	return oldest.handle.Close() == nil
}

// isFound says whether it is known by now.
func (l *lead) isFound() bool {
	select {
	case <-l.found:
		return true
	default:
		return false
	}
}

// close ends all. Nothing is looked for any more.
func (s *ways) close() error {
	s.all.Wait()
	var errs []error
	for _, l := range s.known {
		if l.handle != nil {
			errs = append(errs, l.handle.Close())
		}
	}
	return errors.Join(errs...)
}
