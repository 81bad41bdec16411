package connect

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
)

// Limits for connections at a Listener whose handshake is not complete. SECURITY.md states them.
const (
	// MaxPending bounds the handshakes of all addresses.
	MaxPending = 512
	// MaxPendingPerAddress bounds the handshakes of one address; for IPv6, unless link-local, of
	// one network of 64 bits.
	MaxPendingPerAddress = 64
	// FirstByteTime is the time until the first byte.
	FirstByteTime = time.Second
	// TLSTime is the time of the TLS handshake, from the first byte on.
	TLSTime = 3 * time.Second
	// OfferTime is the time of an offer, from the first byte or from the end of the TLS handshake to its last byte.
	OfferTime = time.Second
)

// pending is a connection whose handshake is not complete. The set's lock guards heard and proven.
type pending struct {
	host   netip.Prefix // the address that it counts for
	heard  bool         // a byte has arrived
	proven bool         // the authority has signed its certificate
	end    context.CancelCauseFunc
	stage  *time.Timer // ends it if the current step takes too long
}

// pendingSet bounds the handshakes in progress. If there are too many, a newer one replaces an
// older one. So the listener serves a peer that sends its offer at once, however many connections
// others hold.
type pendingSet struct {
	mu  sync.Mutex
	set *addrlimit.Set[*pending]
}

func newPendingSet() pendingSet {
	return pendingSet{set: addrlimit.New[*pending](MaxPending, MaxPendingPerAddress)}
}

// lateError means that a step took too long.
type lateError struct {
	what  string
	limit time.Duration
}

func (e *lateError) Error() string        { return fmt.Sprintf("%s took longer than %v", e.what, e.limit) }
func (e *lateError) Is(target error) bool { return target == context.DeadlineExceeded }

// limitError means that there is no place for a connection.
type limitError struct {
	reason Reason
	text   string
}

func (e *limitError) Error() string { return e.text }

var (
	errAddressLimit = &limitError{ReasonAddressLimit, fmt.Sprintf("%d connections of its address are in their handshake, which is the most", MaxPendingPerAddress)}
	errLimit        = &limitError{ReasonLimit, fmt.Sprintf("%d connections are in their handshake, which is the most", MaxPending)}
)

// add adds a connection. If there are too many, it replaces another one. The error says why there
// is no place.
func (s *pendingSet) add(p *pending) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit, rivals := s.set.Full(p.host); limit != addrlimit.None {
		why := errLimit
		if limit == addrlimit.Network {
			why = errAddressLimit
		}
		old := replaceable(rivals)
		if old == nil {
			return why
		}
		s.set.Remove(old)
		old.end(why)
	}
	s.set.Add(p, p.host)
	return nil
}

// replaceable returns the connection that a newer one replaces: the oldest that has sent nothing,
// or else the oldest whose peer is not authenticated; nil if there is none.
func replaceable(all []*pending) (oldest *pending) {
	for _, p := range all {
		switch {
		case p.proven:
		case !p.heard:
			return p
		case oldest == nil:
			oldest = p
		}
	}
	return oldest
}

// done frees the place of a connection.
func (s *pendingSet) done(p *pending) {
	p.stage.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set.Remove(p)
}

func (s *pendingSet) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.Len()
}

// hears records that a byte has arrived.
func (s *pendingSet) hears(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.heard = true
}

// proves records that the peer is authenticated.
func (s *pendingSet) proves(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.proven = true
}

// newPending makes a pending that waits for the first byte. end ends its handshake.
func newPending(conn net.Conn, end context.CancelCauseFunc) *pending {
	p := &pending{host: hostOf(conn.RemoteAddr()), end: end}
	late := &lateError{"the first byte", FirstByteTime}
	p.stage = time.AfterFunc(late.limit, func() { end(late) })
	return p
}

// within ends the handshake unless the next step is done in time. The connection's own goroutine
// calls it, after the previous step.
func (p *pending) within(what string, limit time.Duration) {
	p.stage.Stop()
	late := &lateError{what, limit}
	p.stage = time.AfterFunc(limit, func() { p.end(late) })
}

// hostOf returns the prefix by which connections are counted.
func hostOf(remote net.Addr) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return addrlimit.Host(tcp.AddrPort().Addr())
}

// awaitByte waits until the peer has sent something or closed, and leaves it to be read.
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
		return err != unix.EAGAIN && err != unix.EINTR // the next read returns the error again
	})
}
