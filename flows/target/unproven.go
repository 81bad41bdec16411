package target

import (
	"errors"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// Seats of queues whose hosts have proven nothing are bounded, in all and by host: half of the sessions, and half of those of one host. Where a bound is reached,
// or all sessions are taken, one of them gives way to the newest, once it has had the time that a host needs. Hosts that have connected, with their key where keys are asked for, never do, nor
// do their I/O queues once the host has confirmed them.
//
// Who is connected to the discovery subsystem, which asks for no proof, stays among them.

// leastUnproven is how many such sessions there are at least, whose hosts are several.
const leastUnproven = 2

// Unproven is how many of so many sessions queues may have whose hosts have proven nothing, in all and of one host.
func Unproven(seats int) (most, each int) {
	most = max(leastUnproven, seats/2)
	return most, max(1, most/2)
}

var (
	errGaveWay = errors.New("the host has proven nothing, and the place of its queue went to a newer one")
	// errNoSessionYet says that a session is about to be free.
	errNoSessionYet = errors.New("a place for the queue is about to be free")
)

// How long a queue waits for a session, how often it asks, and how long others keep theirs: those
// whose hosts have not confirmed the connection, and those whose hosts have not said what for.
const (
	seatTime      = 5 * time.Second
	seatAsks      = 5 * time.Millisecond
	confirmTenure = 250 * time.Millisecond
	connectTenure = time.Second
)

// freeSession is a session for a queue of a host that has proven nothing yet, for which another may have
// to give way first.
func (s *Server) freeSession(peer netip.Addr) (*session, error) {
	network := addrlimit.Host(peer)
	if limit, rivals := s.unproven.Full(network); limit != addrlimit.None && !s.endUnproven(rivals) {
		return nil, errNoSessionYet
	}
	ending := false
	for i := range s.sessions {
		switch p := &s.sessions[i]; p.state {
		case sessionFree:
			s.unproven.Add(p, network)
			return p, nil
		case sessionEnding:
			ending = true
		}
	}
	if ending {
		return nil, errNoSessionYet
	}
	if rivals := s.unproven.Busiest(); len(rivals) > 0 {
		s.endUnproven(rivals)
		return nil, errNoSessionYet
	}
	return nil, fabrics.RejectNoResources
}

// endUnproven ends the queue of a host that has proven nothing: the oldest that is not confirmed, or
// else the oldest. It reports whether there is one that has had its time.
func (s *Server) endUnproven(rivals []*session) bool {
	for _, of := range []struct {
		state  sessionState
		tenure time.Duration
	}{{sessionConnecting, confirmTenure}, {sessionOpen, connectTenure}} {
		for _, p := range rivals {
			if p.state == of.state && s.now-p.since >= int64(of.tenure) {
				s.unproven.Remove(p)
				s.count.gaveWay.Add(1)
				s.fail(p, errGaveWay)
				return true
			}
		}
	}
	return false
}

// confirmed is called when the host of a queue has shown that it hears us at its address. Its I/O
// queues are a connected host's then, which connects all of them before it says what for.
func (s *Server) confirmed(p *session) {
	if p.id == fabrics.AdminQueue {
		return
	}
	for _, h := range s.hosts {
		if h.admin.trusted && !h.Subsystem.Discovery() && h.admin.peer == p.peer && s.queuesOf(p.peer) < len(h.queues)+1 {
			s.unproven.Remove(p)
			return
		}
	}
}

// queuesOf counts the queues from an address that are not among the unproven: no more than a
// host may have, whoever else is at its address.
func (s *Server) queuesOf(peer netip.Addr) (n int) {
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state == sessionOpen && p.peer == peer && !s.unproven.Has(p) {
			n++
		}
	}
	return n
}

// proven is called when a host is connected, by name or, where keys are asked for, by its proof.
func (s *Server) proven(p *session) {
	if p.trusted && p.host != nil && !p.host.Subsystem.Discovery() {
		s.unproven.Remove(p)
	}
}
