package blocks

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// batches is how often a round polls a completion queue at most.
const batches = 8

// takeRequests takes what clients have sent, and returns how many completions there were.
func (s *Server) takeRequests() (n int, err error) {
	for range batches {
		got, err := s.came.queue.Poll(s.came.buf[:])
		if err != nil {
			return n, fmt.Errorf("poll for requests: %w", err)
		}
		for i := range s.came.buf[:got] {
			s.arrive(&s.came.buf[i])
		}
		if n += got; got < len(s.came.buf) {
			break
		}
	}
	return n, nil
}

// arrive takes one completion of a receive.
func (s *Server) arrive(c *rdma.WorkCompletion) {
	cell := int(uint32(c.ID))
	if cell >= s.plan.clients*s.plan.receives() {
		return
	}
	p := &s.seats[cell/s.plan.receives()]
	if p.state != seatTaken || p.generation != uint32(c.ID>>32) {
		return
	}
	if c.Status != rdma.Success {
		s.fail(p, fmt.Errorf("a receive: %w", c.Err()))
		return
	}
	a := queuedRequest{at: s.now}
	reason := protocol.BadKind
	if c.Kind == rdma.Received {
		a.request, reason = protocol.ParseRequest(s.cells.bytes(cell)[:min(c.Length, protocol.HeaderLen)])
	}
	s.count.requests.Add(1)
	p.count.requests.Add(1)
	switch {
	case reason != protocol.None && reason != protocol.OutOfRange:
		s.offend(p, reason)
		return
	case p.open == s.plan.window:
		s.offend(p, protocol.BeyondCredit)
		return
	case reason == protocol.None:
		reason = s.plan.check(&a.request, p.may)
	}
	a.reason = reason
	p.push(a)
	p.open++
	s.waiting++
	s.receive(p, cell)
	s.queueForPosting(p)
}

// offend ends a client who breaks the protocol.
func (s *Server) offend(p *session, reason protocol.Reason) {
	s.count.refused[reason].Add(1)
	p.count.refused[reason].Add(1)
	s.fail(p, reason)
}

// takeSent takes answers that have arrived, and returns how many completions there were.
func (s *Server) takeSent() (n int, err error) {
	for range batches {
		got, err := s.sent.queue.Poll(s.sent.buf[:])
		if err != nil {
			return n, fmt.Errorf("poll for writes that are done: %w", err)
		}
		for i := range s.sent.buf[:got] {
			s.arrived(&s.sent.buf[i])
		}
		if n += got; got < len(s.sent.buf) {
			break
		}
	}
	return n, nil
}

// arrived takes one completion of an answer.
func (s *Server) arrived(c *rdma.WorkCompletion) {
	op := int32(uint32(c.ID))
	if op < 0 || int(op) >= len(s.operations) {
		return
	}
	o := &s.operations[op]
	p := o.seat
	switch {
	case p.state != seatTaken || p.generation != uint32(c.ID>>32) || o.state != opAnswered:
		return
	case c.Status != rdma.Success:
		s.fail(p, failure(c, o))
		return
	case o.reason == protocol.None:
		n := uint64(o.request.Length)
		s.count.served.Add(1)
		s.count.bytes.Add(n)
		p.count.served.Add(1)
		p.count.bytes.Add(n)
		s.count.latency.Record(uint64(max(0, s.now-o.at)))
	}
	s.finish(op)
}

// failure says why an answer did not get to its client.
func failure(c *rdma.WorkCompletion, o *operation) error {
	err := fmt.Errorf("write %d bytes to address %#x with rkey %#x: %w", o.request.Length, o.request.Address, o.request.RKey, c.Err())
	if errors.Is(err, rdma.RemoteAccess) {
		return fmt.Errorf("%w: %w", protocol.NotGranted, err)
	}
	return err
}
