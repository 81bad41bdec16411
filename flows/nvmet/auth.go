package nvmet

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// errUnproven ends the queue of a host that has not authenticated, or that rejects the server's
// proof.
var errUnproven = errors.New("the host has not proved who it is")

// deferredJob is work of a queue that takes too long for the server's thread, and the function with
// which the server's thread continues afterwards. A queue has one job at a time.
type deferredJob struct{ work, then func() }

func (c *deferredJob) do(on stream.Doer) error {
	c.work()
	return on(func() error { c.then(); return nil })
}

// authenticates reports whether a command is Authentication Send or Receive.
func (o *operation) authenticates() bool {
	c := &o.command
	return c.Opcode == fabrics.OpFabrics && (c.Fabrics == fabrics.AuthSend || c.Fabrics == fabrics.AuthReceive)
}

// authenticate begins such a command.
func (s *Server) authenticate(o *operation) {
	n, status := fabrics.AuthLength(&o.command)
	d := &o.command.Data
	switch {
	case status != fabrics.Success:
		s.answer(o, status)
	case o.session.proving:
		s.answer(o, fabrics.CommandSequence|fabrics.DoNotRetry)
	case o.command.Fabrics == fabrics.AuthSend:
		s.rdmaRead(o, n)
	case d.Length != n:
		s.answer(o, fabrics.InvalidSGLLength|fabrics.DoNotRetry)
	case d.Place != fabrics.InHost:
		s.answer(o, fabrics.InvalidSGLType|fabrics.DoNotRetry)
	default:
		s.need(o, 0, n)
	}
}

// examine processes a message of the host on another thread: a key exchange takes milliseconds.
func (s *Server) examine(o *operation) {
	p := o.session
	if p.proving || p.proof.Err() != nil {
		s.answer(o, fabrics.CommandSequence|fabrics.DoNotRetry)
		return
	}
	o.state, p.proving = opProving, true
	proof, message := p.proof, bytes.Clone(s.region.Bytes(o.buffers[0].frame))
	p.jobs <- deferredJob{func() { proof.Take(message) }, func() { s.examined(o) }}
}

// examined continues with the result. The host gets the result by its next request, unless the host
// has ended the exchange.
func (s *Server) examined(o *operation) {
	p := o.session
	p.proving = false
	s.judge(p)
	o.hangup = p.proof.Over()
	s.answer(o, fabrics.Success)
}

// judge accepts or rejects the host by the result of the exchange, and counts a failure once. It
// counts at once, because the host may be gone before its queue ends.
func (s *Server) judge(p *session) {
	p.trusted = p.proof.Proven()
	s.proven(p)
	if err := p.proof.Err(); err != nil && !p.doubted {
		p.doubted = true
		s.count.unproven.Add(1)
		if h := p.host; h != nil { // nil if its admin queue has ended
			s.config.Log.Warn("host failed to authenticate", "target", s.config.Name, "host", h.Host.HostNQN, "controller", h.ID, "queue", p.id, "err", err)
		}
	}
}

// challenge sends the host the next message of the exchange. A failure message is the last.
func (s *Server) challenge(o *operation) {
	p := o.session
	if p.proving {
		s.answer(o, fabrics.CommandSequence|fabrics.DoNotRetry)
		return
	}
	room := s.region.Bytes(o.buffers[1].frame)
	message := p.proof.Next()
	if len(message) > len(room) {
		p.proof.End()
		s.judge(p)
		o.hangup = true
		s.answer(o, fabrics.InvalidField|fabrics.DoNotRetry)
		return
	}
	clear(room[copy(room, message):])
	s.judge(p)
	o.hangup = p.proof.Over()
	s.answer(o, fabrics.Success)
}

// finalResponse returns why a queue ends after the current answer.
func (p *session) finalResponse() error {
	if p.proof == nil || p.trusted {
		return errHungUp
	}
	return fmt.Errorf("%w: %w", errUnproven, p.proof.Err())
}
