package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
)

// peerPath is between an address of ours and one of a peer's.
type peerPath struct {
	place         uint8 // of ours in the table of GIDs
	local, remote rdma.GID
}

// numbered is something of a peer's by its number: an identifier, or a queue pair. Numbers are a card's own, and a card is
// believed only what it says from its address.
type numbered struct {
	from   rdma.GID
	guid   uint64
	number uint32
}

// handleCache are the address handles to peers, which take the network a while to find. Those unused longest end for new ones. A message from an
// address is taken only when the way there is known: who has forged its address has us look for that and no more.
type handleCache struct {
	device *roce.Device
	domain rdma.ProtectionDomain
	news   func() // is called when one was found, or not
	all    sync.WaitGroup

	mu      sync.Mutex
	known   map[peerPath]*cachedHandle
	finding *addrlimit.Set[*cachedHandle] // that peers have us look for
	clock   uint64                        // of uses
	cut     uint64                        // look-ups that gave way to newer ones
}

// cachedHandle is the way to one peer.
type cachedHandle struct {
	way     peerPath
	stop    context.CancelCauseFunc // ends looking
	handle  rdma.AddressHandle
	err     error
	found   chan struct{} // closed when there is one of the above
	arrived [][]byte      // messages of the peer's that wait for it
	pending []datagram    // ours
	sending int           // messages posted and not complete
	used    uint64
}

// Bounds of what peers can have us look for. SECURITY.md states them.
const (
	// MaxLookups is how many addresses peers may have us look for at once; the oldest gives way to a newer one.
	MaxLookups = 128
	// MaxLookupsPerNetwork is how many of one network: 24 bits of IPv4, 64 of IPv6.
	MaxLookupsPerNetwork = 64
	// LookupTime is how long an address is looked for.
	LookupTime = 3 * time.Second

	maxWays    = 128
	maxPending = 4 // messages each way that wait for one of them
)

var (
	errBusy = errors.New("too many ways to peers are in use")
	errCut  = errors.New("too many ways to peers are being looked for")
)

func newHandleCache(d *roce.Device, news func()) handleCache {
	return handleCache{device: d, news: news, known: map[peerPath]*cachedHandle{}, finding: addrlimit.New[*cachedHandle](MaxLookups, MaxLookupsPerNetwork)}
}

// find is the way to a peer, which is looked for where it is not known. One that a program of ours wants gives way to none.
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
	for len(s.known)-s.finding.Len() >= maxWays {
		if !s.evict() {
			return nil, errBusy
		}
	}
	ctx, stop := context.WithCancelCause(context.Background())
	l := &cachedHandle{way: w, stop: stop, found: make(chan struct{}), used: s.clock}
	if !ours {
		s.makeRoom(l)
	}
	s.known[w] = l
	s.all.Go(func() { s.look(ctx, l) })
	return l, nil
}

// makeRoom counts a look-up for a peer. The oldest gives way where there are too many. The caller has the lock.
func (s *handleCache) makeRoom(l *cachedHandle) {
	network := addrlimit.Link(l.way.remote.Addr())
	if limit, rivals := s.finding.Full(network); limit != addrlimit.None {
		s.cut++
		s.forget(rivals[0])
		rivals[0].stop(errCut)
	}
	s.finding.Add(l, network)
}

// cuts is how many look-ups gave way to newer ones.
func (s *handleCache) cuts() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// forget has a way looked for anew by who wants it. The caller has the lock.
func (s *handleCache) forget(l *cachedHandle) {
	s.finding.Remove(l)
	if s.known[l.way] == l {
		delete(s.known, l.way)
	}
}

// look has the device find the way. One that is not found is forgotten, so that it is looked for anew.
func (s *handleCache) look(ctx context.Context, l *cachedHandle) {
	ctx, cancel := context.WithTimeout(ctx, LookupTime)
	defer cancel()
	handle, err := s.device.NewAddressHandle(ctx, s.domain, rdma.Address{GID: l.way.remote, GIDIndex: l.way.place, Port: 1})
	s.mu.Lock()
	if err == nil && s.known[l.way] != l { // it has given way meanwhile
		err = errors.Join(errCut, handle.Close())
		handle = nil
	}
	l.handle, l.err = handle, err
	if s.finding.Remove(l); err != nil {
		s.forget(l)
	}
	s.mu.Unlock()
	close(l.found)
	s.news()
}

// evict ends the way that is unused longest, and says whether there was one. The caller has the lock.
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

// isFound says whether it is known by now.
func (l *cachedHandle) isFound() bool {
	select {
	case <-l.found:
		return true
	default:
		return false
	}
}

// close ends all. Nothing is looked for any more.
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
