package feed

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/feed"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// server is a retransmission server. The worker asks it over a socket of the kernel, which never blocks.
type server struct {
	fd      int // -1: there is none
	answers []byte
	request [feed.RequestLen]byte
	unsent  counter.Counter
}

func (s *server) open(address string, longest int) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("retransmission server: %w", err)
	}
	family, at := unix.AF_INET6, unix.Sockaddr(nil)
	if to.Addr().Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		at = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	if s.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return fmt.Errorf("retransmission server %s: open a socket: %w", address, err)
	}
	if err := unix.Connect(s.fd, at); err != nil { // so that it receives from the server only
		_ = s.close()
		return fmt.Errorf("retransmission server %s: %w (ip route get, for the way there)", address, err)
	}
	s.answers = make([]byte, longest+1)
	return nil
}

func (s *server) close() error {
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

// ask sends a request. If that fails, the gap is declared when its time is over.
func (s *server) ask(session feed.Session, first uint64, n uint16) {
	feed.PutRequest(&s.request, session, first, n)
	if _, err := unix.Write(s.fd, s.request[:]); err != nil {
		s.unsent.Add(1)
	}
}

// receive returns an answer, or nil. It is valid until the next call.
func (s *server) receive() []byte {
	n, err := unix.Read(s.fd, s.answers)
	if err != nil { // none waits, or the server refused a request
		return nil
	}
	return s.answers[:n]
}
