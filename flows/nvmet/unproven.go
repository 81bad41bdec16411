package nvmet

import (
	"errors"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// Queues whose hosts have proven nothing get at most half of all sessions, and those of one host at
// most half of that. When a limit is reached, or all sessions are in use, the server ends one of
// these queues in favour of the newest one, but only after the queue has had the time that a host
// needs to connect. It never ends a host in this way that has connected, and has authenticated if
// keys are configured. Nor does it end the host's I/O queues that the host has confirmed.
//
// Hosts of the discovery subsystem, which does not authenticate, always count as unproven.

// leastUnproven is the smallest limit, if the sessions are of several hosts.
const leastUnproven = 2

// unproven returns the limits for a number of sessions: of all unproven queues, and of those of one
// host.
func unproven(seats int) (most, each int) {
	most = max(leastUnproven, seats/2)
	return most, max(1, most/2)
}

var (
	errGaveWay = errors.New("the host has proven nothing, and the place of its queue went to a newer one")
	// errNoSessionYet means that a session is about to become free.
	errNoSessionYet = errors.New("a place for the queue is about to be free")
)

// The time that a queue waits for a session, the interval of its attempts, and the time for which
// other queues keep theirs: those whose hosts have not confirmed the connection, and those whose
// hosts have not sent Connect.
const (
	seatTime      = 5 * time.Second
	seatAsks      = 5 * time.Millisecond
	confirmTenure = 250 * time.Millisecond
	connectTenure = time.Second
)

// freeSession returns a session for a queue of an unproven host. The server may have to end another
// session first.
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

// endUnproven ends the queue of an unproven host: the oldest one that is not confirmed, or else the
// oldest. It reports whether it has ended one. It ends none that has not had its time.
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

// confirmed is called when the host of a queue has answered from its address. An I/O queue then
// belongs to a connected host. Hosts connect all their queues before they send Connect on them.
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

// queuesOf counts the proven queues from an address. They may be no more than one host may have,
// even if several hosts share the address.
func (s *Server) queuesOf(peer netip.Addr) (n int) {
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state == sessionOpen && p.peer == peer && !s.unproven.Has(p) {
			n++
		}
	}
	return n
}

// proven is called when a host has connected, and authenticated if keys are configured.
func (s *Server) proven(p *session) {
	if p.trusted && p.host != nil && !p.host.Subsystem.Discovery() {
		s.unproven.Remove(p)
	}
}
