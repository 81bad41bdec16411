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
	host   netip.Prefix // that it counts for
	heard  bool         // a byte has come
	proven bool         // the authority has signed its certificate
	end    context.CancelCauseFunc
	stage  *time.Timer // ends it where the next step takes too long
}

// pendingSet bounds how many connections are in their handshake. Where there are too many, a newer one takes the place of an older one, so that
// a peer that says what it wants at once is heard whatever others hold.
type pendingSet struct {
	mu  sync.Mutex
	set *addrlimit.Set[*pending]
}

func newPendingSet() pendingSet {
	return pendingSet{set: addrlimit.New[*pending](MaxPending, MaxPendingPerAddress)}
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

// replaceable is the connection that a newer one takes the place of: the oldest that has said nothing, or else the oldest whose peer has
// not proven itself; nil where all have.
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

// done gives the place of a connection back.
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
	p := &pending{host: hostOf(conn.RemoteAddr()), end: end}
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

// hostOf is what connections are counted by.
func hostOf(remote net.Addr) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return addrlimit.Host(tcp.AddrPort().Addr())
}

// AwaitByte waits for the first byte of a peer that speaks first, for FirstByteTime at most, and leaves it to be read. It is for who listens without a
// Listener.
func AwaitByte(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(FirstByteTime)); err != nil {
		return err
	}
	if err := awaitByte(conn); err != nil {
		return fmt.Errorf("wait for the first byte of %v: %w", conn.RemoteAddr(), err)
	}
	return conn.SetReadDeadline(time.Time{})
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
