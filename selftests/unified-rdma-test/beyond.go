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
		return 0, err
	}
	_, err := l.await(l.sent)
	return refused(err, want...)
}

// overdo has a request ask for a little more than it may, and returns how that may end. Of a
// message longer than its receive Soft-RoCE says that the peer failed, others that the request
// is invalid, as the specification has it (IBTA, volume 1, 9.7.4.1).
func (l *link) overdo(r *rdma.SendRequest, s *rdma.SGE) []rdma.Status {
	switch {
	case l.op == rdma.Send, l.op == rdma.SendImmediate:
		s.Length++ // than the peer's receive has
		return []rdma.Status{rdma.RemoteInvalidRequest, rdma.RemoteOperation}
	case isAtomic(l.op):
		r.RemoteAddr = l.theirs.Addr + l.theirs.Length
	default:
		s.Length = max(s.Length, 1)
		r.RemoteAddr = l.theirs.Addr + l.theirs.Length - uint64(s.Length) + 1
	}
	return []rdma.Status{rdma.RemoteAccess}
}

// beyondPort is a message one byte longer than the port takes.
func (l *link) beyondPort() (rdma.Status, error) {
	longer := *l
	longer.Size = uint64(l.port.MaxMessage) + 1
	if l.Transport == rdma.UD {
		longer.Size = uint64(l.port.ActiveMTU.Bytes()) + 1
	}
	return refused(longer.fits(), rdma.LocalLength)
}

// refused is the status of an error, which must be one of those.
func refused(err error, want ...rdma.Status) (rdma.Status, error) {
	for _, s := range want {
		if errors.Is(err, s) {
			return s, nil
		}
	}
	if err == nil {
		return 0, fmt.Errorf("a request beyond what is allowed must be refused with %v, and was done", want)
	}
	return 0, fmt.Errorf("a request beyond what is allowed must be refused with %v: %w", want, err)
}
