package channel

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
)

// path is a way to the peer. Its queue pairs, receives and completions are its own, so that one path can connect while
// another one is in use.
type path struct {
	stream.PathRecord // of Run, and while a connection lasts of its comeback
	device            string
	endpoint          *stream.Endpoint
	address           string
	cells             *ep.ControlBuffers
	done              ep.Completions
	handle            func(*rdma.WorkCompletion)
	base              uint64 // of the ring, in the registration
	lkey              uint32
	sent              counter.Counter // messages
}

// preparePaths makes the list of paths.
func (s *Sender) preparePaths() {
	c := &s.config
	for _, p := range append([]stream.Path{{Device: c.Device, Endpoint: c.Endpoint, Address: c.Address}}, c.Paths...) {
		one := &path{device: p.Device, endpoint: p.Endpoint, address: p.Address, base: p.Endpoint.Memory.Addr() + c.Outlet.Base(), lkey: p.Endpoint.Memory.LKey()}
		one.handle = func(c *rdma.WorkCompletion) { s.complete(one, c) }
		s.paths = append(s.paths, one)
	}
	s.dialBy(s.paths[0])
}

// open makes what the path needs for its connections.
func (p *path) open(s *Sender) (err error) {
	if p.cells, err = ep.NewControlBuffers(s.holder, p.endpoint.Memory, acks, 64); err != nil {
		return err
	}
	p.done.Queue, err = p.endpoint.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: s.writes + acks, Events: s.config.Events})
	return err
}

// several reports whether there is more than one path.
func (s *Sender) several() bool { return len(s.paths) > 1 }

// dialBy makes Run use a path for the next connection.
func (s *Sender) dialBy(p *path) {
	s.path = p
	if s.several() {
		s.state.at.Store(&p.address)
	}
}

// mostHold is how long the writer is waited for at least while no path is connected, and it waits itself.
//
// With the policy wait nothing may be lost when the path changes, so the writer goes on waiting for what the peer has not
// acknowledged. It waits no longer for a peer that no path reaches.
const mostHold = 3 * time.Second

// hold makes the writer wait for what follows what the peer has acknowledged, until release.
func (s *Sender) hold(next uint64) {
	s.config.Reader.Begin(next)
	s.held = true
}

// release makes the writer go on without the peer.
func (s *Sender) release() {
	if s.held {
		s.config.Reader.End()
		s.held = false
	}
}

// oldest returns the first message that can still be sent, last being the last one. While the writer waits for the peer,
// it has written over nothing that the peer has not acknowledged.
func (s *Sender) oldest(last uint64) uint64 {
	if next := s.page.Cursor(); s.several() && s.held && s.config.Reader.Blocks() && next <= last+1 && last-next < s.slots {
		return next
	}
	return s.ring.First(last)
}

// probeSilent probes the peer while it is silent, until stop is called. It has memory to write into, so that a WRITE of no
// bytes is a probe.
func (s *Sender) probeSilent(do stream.Doer) (stop func()) {
	if !s.several() {
		return func() {}
	}
	return stream.Looks(do, func() bool { return s.ring.Last() >= s.page.Cursor() }, s.look)
}

// look posts a probe if one is due.
func (s *Sender) look() {
	l := s.link
	if l.cause != nil || !l.probe.Due(s.ring.Last() > l.acked) || int(l.posted-l.completed) >= s.writes {
		return
	}
	if err := l.probe.Post(l.pair, rdma.Write, l.posted); err != nil {
		s.fail(fmt.Errorf("post a probe: %w", err))
		return
	}
	l.path.Probed()
}

// atFault reports whether the end of a connection says something of its path. The writer may have ended it.
func atFault(cause error) bool {
	return !errors.Is(cause, errSlow) && !errors.Is(cause, errNumbering)
}

// change chooses the path of the next connection. It reports whether Run must wait: no path has rested.
func (s *Sender) change(cause error) (wait bool) {
	switch {
	case s.taken != nil: // a path that is preferred has a connection already
		s.path.Leaves(nil)
		return false
	case !atFault(cause):
		s.path.Leaves(nil)
		return true
	case s.disturbed: // by an attempt over another path, at which the peer ended this connection
		s.path.Leaves(nil)
	default:
		s.path.Leaves(cause)
	}
	s.disturbed = false
	now, next := time.Now(), s.paths[0]
	for _, p := range s.paths {
		if !p.Rest().After(now) {
			s.dialBy(p)
			return false
		}
		if p.Rest().Before(next.Rest()) {
			next = p
		}
	}
	s.dialBy(next)
	if time.Since(s.ended) > mostHold {
		s.release()
	}
	return true
}

// PathStats returns the state and counters of the paths, if there are several. Any goroutine may call it.
func (s *Sender) PathStats() (all []stream.PathStats) {
	if !s.several() {
		return nil
	}
	for _, p := range s.paths {
		one := p.Stats()
		one.Device, one.Address, one.Messages = p.device, p.address, p.sent.Load()
		all = append(all, one)
	}
	return all
}
