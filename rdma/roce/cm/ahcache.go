package cm

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
)

// peerPath is a pair of a local and a remote address.
type peerPath struct {
	place         uint16 // index of the local address in the GID table
	local, remote rdma.GID
}

// remoteKey identifies an object of a peer by its number: a communication ID or a queue pair. A
// card chooses its own numbers. The manager believes it only about numbers sent from its own
// address.
type remoteKey struct {
	from   rdma.GID
	guid   uint64
	number uint32
}

// handleCache holds the address handles of peers, which take time to resolve. It closes the least
// recently used one when there is no room. The manager processes a message only after the address
// of its sender is resolved. So a forged address costs one lookup, and nothing more.
type handleCache struct {
	device  *roce.Device
	domain  rdma.ProtectionDomain
	changed func() // called at the end of a lookup
	all     sync.WaitGroup

	mu      sync.Mutex
	known   map[peerPath]*cachedHandle
	finding *addrlimit.Set[*cachedHandle] // lookups that peers have caused
	clock   uint64                        // counts uses
	cut     uint64                        // lookups that newer ones replaced
}

// cachedHandle is the address handle of one peer.
type cachedHandle struct {
	path    peerPath
	stop    context.CancelCauseFunc // ends the lookup
	handle  rdma.AddressHandle
	err     error
	found   chan struct{} // closed at the end of the lookup
	arrived [][]byte      // received messages that wait for the lookup
	pending []datagram    // messages to send that wait for the lookup
	sending int           // messages posted and not completed
	used    uint64
}

// Limits of the lookups that peers cause. SECURITY.md states them.
const (
	// maxLookups bounds the lookups at a time. A new one replaces the oldest.
	maxLookups = 128
	// maxLookupsPerNetwork bounds the lookups of one network: 24 bits of IPv4, 64 of IPv6.
	maxLookupsPerNetwork = 64
	// LookupTime bounds the time of a lookup.
	LookupTime = 3 * time.Second

	maxHandles = 128
	maxPending = 4 // messages in each direction that wait for one lookup
)

var (
	errBusy = errors.New("too many address handles of peers are in use")
	errCut  = errors.New("too many addresses of peers are being resolved")
)

func newHandleCache(d *roce.Device, news func()) handleCache {
	return handleCache{device: d, changed: news, known: map[peerPath]*cachedHandle{}, finding: addrlimit.New[*cachedHandle](maxLookups, maxLookupsPerNetwork)}
}

// find returns the handle of a peer, and starts a lookup if there is none. A lookup for our own
// program is never replaced by another.
func (s *handleCache) find(w peerPath, ours bool) (*cachedHandle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	if l := s.known[w]; l != nil {
		l.used = s.clock
		if ours {
			s.finding.Remove(l)
		}
		return l, nil
	}
	for len(s.known)-s.finding.Len() >= maxHandles {
		if !s.evict() {
			return nil, errBusy
		}
	}
	ctx, stop := context.WithCancelCause(context.Background())
	l := &cachedHandle{path: w, stop: stop, found: make(chan struct{}), used: s.clock}
	if !ours {
		s.makeRoom(l)
	}
	s.known[w] = l
	s.all.Go(func() { s.look(ctx, l) })
	return l, nil
}

// makeRoom counts a lookup for a peer, and ends the oldest if there are too many. The caller holds
// the lock.
func (s *handleCache) makeRoom(l *cachedHandle) {
	network := addrlimit.Link(l.path.remote.Addr())
	if limit, rivals := s.finding.Full(network); limit != addrlimit.None {
		s.cut++
		s.forget(rivals[0])
		rivals[0].stop(errCut)
	}
	s.finding.Add(l, network)
}

// cuts returns how many lookups newer ones have replaced.
func (s *handleCache) cuts() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// forget removes a handle, so that the next use looks it up again. The caller holds the lock.
func (s *handleCache) forget(l *cachedHandle) {
	s.finding.Remove(l)
	if s.known[l.path] == l {
		delete(s.known, l.path)
	}
}

// look resolves the address. A failed lookup is removed, so that the next use tries again.
func (s *handleCache) look(ctx context.Context, l *cachedHandle) {
	ctx, cancel := context.WithTimeout(ctx, LookupTime)
	defer cancel()
	handle, err := s.device.NewAddressHandle(ctx, s.domain, rdma.Address{GID: l.path.remote, GIDIndex: l.path.place, Port: 1})
	s.mu.Lock()
	if err == nil && s.known[l.path] != l { // a newer lookup has replaced it
		err = errors.Join(errCut, handle.Close())
		handle = nil
	}
	l.handle, l.err = handle, err
	if s.finding.Remove(l); err != nil {
		s.forget(l)
	}
	s.mu.Unlock()
	close(l.found)
	s.changed()
}

// evict closes the least recently used handle, and reports whether there was one. The caller holds
// the lock.
func (s *handleCache) evict() bool {
	var oldest *cachedHandle
	var at peerPath
	for w, l := range s.known {
		if l.handle != nil && l.sending == 0 && len(l.pending)+len(l.arrived) == 0 && (oldest == nil || l.used < oldest.used) {
			oldest, at = l, w
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.known, at)
	return oldest.handle.Close() == nil
}

// isFound reports whether the lookup has succeeded.
func (l *cachedHandle) isFound() bool {
	select {
	case <-l.found:
		return true
	default:
		return false
	}
}

// close ends all lookups and closes all handles.
func (s *handleCache) close() error {
	s.mu.Lock()
	for _, l := range s.known {
		l.stop(errCut)
	}
	s.mu.Unlock()
	s.all.Wait()
	var errs []error
	for _, l := range s.known {
		if l.handle != nil {
			errs = append(errs, l.handle.Close())
		}
	}
	return errors.Join(errs...)
}
