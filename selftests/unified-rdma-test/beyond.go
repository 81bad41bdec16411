package main

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// beyond has a request refused that asks for more than it may, and returns the status. RC
// tells it, and its queue pair is in error then; UC and UD would lose the message without a
// word, so it must be refused before it is posted.
func (l *link) beyond() (rdma.Status, error) {
	if l.Transport != rdma.RC {
		return l.beyondPort()
	}
	r, s := l.request(uint64(l.Count), 0)
	r.Flags = rdma.Signaled
	want := l.overdo(&r, &s)
	if err := l.send(r, s); err != nil {
		return want, err
	}
	_, err := l.await(l.sent)
	return want, refused(err, want)
}

// overdo has a request ask for a little more than it may, and returns how that must end.
func (l *link) overdo(r *rdma.SendRequest, s *rdma.SGE) rdma.Status {
	switch {
	case l.op == rdma.Send, l.op == rdma.SendImmediate:
		s.Length++ // than the peer's receive has
		return rdma.RemoteInvalidRequest
	case isAtomic(l.op):
		r.RemoteAddr += 4 // not a multiple of 8
		return rdma.RemoteInvalidRequest
	}
	s.Length = max(s.Length, 1)
	r.RemoteAddr = l.theirs.Addr + l.theirs.Length - uint64(s.Length) + 1
	return rdma.RemoteAccess
}

// beyondPort is a message one byte longer than the port takes.
func (l *link) beyondPort() (rdma.Status, error) {
	longer := *l
	longer.Size = uint64(l.port.MaxMessage) + 1
	if l.Transport == rdma.UD {
		longer.Size = uint64(l.port.ActiveMTU.Bytes()) + 1
	}
	return rdma.LocalLength, refused(longer.fits(), rdma.LocalLength)
}

// refused holds an error to be the one that must be.
func refused(err error, want rdma.Status) error {
	switch {
	case errors.Is(err, want):
		return nil
	case err == nil:
		return fmt.Errorf("a request beyond what is allowed must be refused with %v, and was done", want)
	}
	return fmt.Errorf("a request beyond what is allowed must be refused with %v: %w", want, err)
}
