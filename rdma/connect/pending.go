package connect

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what a peer holds at a Listener before its queue pair is connected. SECURITY.md states them.
const (
	// MaxPending is how many connections of all addresses may be in their handshake.
	MaxPending = 512
	// MaxPendingPerAddress is how many of one address may be: of one IPv6 network of 64 bits, where the address is not link-local.
	MaxPendingPerAddress = 64
	// FirstByteTime is how long a connection may be silent at first.
	FirstByteTime = time.Second
	// TLSTime is how long the TLS handshake may take from the first byte on.
	TLSTime = 3 * time.Second
	// OfferTime is how long an offer may take from the first byte, or from the end of the TLS handshake, to its last byte.
	OfferTime = time.Second
)

// pending is a connection whose handshake is not complete. The set's lock guards what changes.
type pending struct {
	address netip.Addr
	heard   bool // a byte has come
	proven  bool // the authority has signed its certificate
	end     context.CancelCauseFunc
	stage   *time.Timer // ends it where the next step takes too long
}

// pendingSet bounds how many connections are in their handshake. Where there are too many, a newer one takes the place of an older one, so that
// a peer that says what it wants at once is heard whatever others hold.
type pendingSet struct {
	mu   sync.Mutex
	all  []*pending // the oldest first
	from map[netip.Addr]int
}

// lateError is a step that took too long.
type lateError struct {
	what  string
	limit time.Duration
}

func (e *lateError) Error() string        { return fmt.Sprintf("%s took longer than %v", e.what, e.limit) }
func (e *lateError) Is(target error) bool { return target == context.DeadlineExceeded }

// limitError is a connection that others leave no place for.
type limitError struct {
	reason Reason
	text   string
}

func (e *limitError) Error() string { return e.text }

var (
	errAddressLimit = &limitError{ReasonAddressLimit, fmt.Sprintf("%d connections of its address are in their handshake, which is the most", MaxPendingPerAddress)}
	errLimit        = &limitError{ReasonLimit, fmt.Sprintf("%d connections are in their handshake, which is the most", MaxPending)}
)

// add takes a connection in, in place of another one where there are too many. The error says why there is no place.
func (s *pendingSet) add(p *pending) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var why *limitError
	var old *pending
	switch {
	case s.from[p.address] >= MaxPendingPerAddress:
		why, old = errAddressLimit, s.replaceable(p.address)
	case len(s.all) >= MaxPending:
		why, old = errLimit, s.replaceable(s.busiest())
	}
	if why != nil && old == nil {
		return why
	}
	if old != nil {
		s.remove(old)
		old.end(why)
	}
	s.all = append(s.all, p)
	s.from[p.address]++
	return nil
}

// busiest is the address with the most connections; of several, that of the oldest connection. The caller has the lock.
func (s *pendingSet) busiest() (address netip.Addr) {
	for _, p := range s.all {
		if s.from[p.address] > s.from[address] {
			address = p.address
		}
	}
	return address
}

// replaceable is the connection of an address that a newer one takes the place of: the oldest that has said nothing, or else the oldest whose peer has
// not proven itself; nil where all have. The caller has the lock.
func (s *pendingSet) replaceable(address netip.Addr) (oldest *pending) {
	for _, p := range s.all {
		switch {
		case p.address != address || p.proven:
		case !p.heard:
			return p
		case oldest == nil:
			oldest = p
		}
	}
	return oldest
}

// remove forgets a connection, which may be forgotten already. The caller has the lock.
func (s *pendingSet) remove(p *pending) {
	at := slices.Index(s.all, p)
	if at < 0 {
		return
	}
	s.all = slices.Delete(s.all, at, at+1)
	if s.from[p.address]--; s.from[p.address] == 0 {
		delete(s.from, p.address)
	}
}

// done gives the place of a connection back.
func (s *pendingSet) done(p *pending) {
	p.stage.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(p)
}

func (s *pendingSet) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// hears notes that a byte has come.
func (s *pendingSet) hears(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.heard = true
}

// proves notes that the peer has a certificate.
func (s *pendingSet) proves(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.proven = true
}

// newPending is a connection whose first byte is waited for. end ends its handshake.
func newPending(conn net.Conn, end context.CancelCauseFunc) *pending {
	p := &pending{address: addressOf(conn.RemoteAddr()), end: end}
	late := &lateError{"the first byte", FirstByteTime}
	p.stage = time.AfterFunc(late.limit, func() { end(late) })
	return p
}

// within ends the handshake unless the step is over in time. The step before must be over: it is the connection's own goroutine that calls.
func (p *pending) within(what string, limit time.Duration) {
	p.stage.Stop()
	late := &lateError{what, limit}
	p.stage = time.AfterFunc(limit, func() { p.end(late) })
}

// addressOf is what connections are counted by. A host may have all addresses of an IPv6 network of 64 bits; link-local ones are one network on all links.
func addressOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	a := tcp.AddrPort().Addr().Unmap()
	if a.Is4() || a.IsLinkLocalUnicast() {
		return a.WithZone("")
	}
	network, _ := a.Prefix(64)
	return network.Addr()
}

// awaitByte waits until the peer has sent something, or has closed, and leaves it to be read.
func awaitByte(conn net.Conn) error {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var b [1]byte
	return raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK)
		return err != unix.EAGAIN && err != unix.EINTR // an error is met again by who reads
	})
}
