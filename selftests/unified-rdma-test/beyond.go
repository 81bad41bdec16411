package main

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// beyond sends a request that exceeds its limits and returns the status with which it is refused.
// With RC the responder refuses the request, and the queue pair goes to the error state. With UC
// and UD the message would be lost silently, so our side must refuse it before it posts it.
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

// overdo makes a request exceed its limits slightly, and returns the statuses with which it may
// end. If a message is longer than its receive, Soft-RoCE reports a remote operation error. Other
// devices report an invalid request, as the specification requires (IBTA, volume 1, 9.7.4.1).
func (l *link) overdo(r *rdma.SendRequest, s *rdma.SGE) []rdma.Status {
	switch {
	case l.op == rdma.Send, l.op == rdma.SendImmediate:
		s.Length++ // longer than the peer's receive
		return []rdma.Status{rdma.RemoteInvalidRequest, rdma.RemoteOperation}
	case isAtomic(l.op):
		r.RemoteAddr = l.theirs.Addr + l.theirs.Length
	default:
		s.Length = max(s.Length, 1)
		r.RemoteAddr = l.theirs.Addr + l.theirs.Length - uint64(s.Length) + 1
	}
	return []rdma.Status{rdma.RemoteAccess}
}

// beyondPort checks that a message one byte longer than the port's limit is refused.
func (l *link) beyondPort() (rdma.Status, error) {
	longer := *l
	longer.Size = uint64(l.port.MaxMessage) + 1
	if l.Transport == rdma.UD {
		longer.Size = uint64(l.port.ActiveMTU.Bytes()) + 1
	}
	return refused(longer.fits(), rdma.LocalLength)
}

// refused returns the status of an error. It must be one of want.
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
