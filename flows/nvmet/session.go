package nvmet

import (
	"errors"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/internal/fifo"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
)

// session is a place for one queue pair of a host. It belongs to the server's thread.
type session struct {
	number     int
	state      sessionState
	generation uint32 // of the queue pair: it distinguishes completions of earlier ones
	qp         rdma.QueuePair
	leaving    *closeState
	since      int64 // time of take

	local   netip.AddrPort
	peer    netip.Addr
	host    *host                // nil until the Connect command, and once its controller has ended
	who     fabrics.HostIdentity // of its host; stays while a disk has operations of it
	id      uint16
	room    int // commands that may be outstanding
	entries uint32
	head    uint32 // of the submission queue, as in completions
	noFlow  bool

	trusted bool            // its host has authenticated, or need not
	proof   *dhchap.Session // of the authentication; belongs to the host's goroutine during a deferredJob
	proving bool
	doubted bool // the authentication failed and was counted
	jobs    chan deferredJob

	arrived fifo.Ring[queuedRequest] // capsules without an operation yet
	blocked fifo.Ring[int32]         // operations that wait for a buffer
	idle    []int32                  // unused operations
	open    int                      // unanswered commands

	list    ep.PostList
	dirty   bool
	counted bool // in counters.queues
}

// closeState is the state of a queue's end.
type closeState struct {
	done  chan struct{} // closed when the queue must end
	cause error         // belongs to the server's thread until done is closed
}

type sessionState uint8

const (
	sessionFree       sessionState = iota
	sessionConnecting              // its queue pair is being made and connected
	sessionOpen                    // it is connected
	sessionEnding                  // must end, and still has its queue pair
	sessionDraining                // has no queue pair, and the disk still reads or writes for it
)

// queuedRequest is a received capsule.
type queuedRequest struct {
	slot   int32
	length uint32
}

// init allocates a session's commands.
func (p *session) init(s *Server, number int) {
	depth := s.config.Depth
	p.number = number
	p.arrived, p.blocked = fifo.New[queuedRequest](depth), fifo.New[int32](2*depth)
	for i := 2*depth - 1; i >= 0; i-- {
		n := int32(number*2*depth + i)
		s.operations[n] = operation{session: p, number: n, slot: none}
		p.idle = append(p.idle, n)
	}
	p.list = ep.NewPostList(s.sends(), s.sends(), depth, 2*depth)
}

const none = int32(-1)

// take takes a session. Its queue pair is made afterwards. errNoSessionYet asks the caller to try
// again.
func (s *Server) take(r fabrics.PrivateRequest, local netip.AddrPort, peer netip.Addr) (*session, error) {
	if s.closed {
		return nil, fabrics.RejectNoResources
	}
	p, err := s.freeSession(peer)
	if err != nil {
		return nil, err
	}
	s.now = time.Now().UnixNano() // the last round may be long ago
	p.state, p.leaving, p.since = sessionConnecting, &closeState{done: make(chan struct{})}, s.now
	p.host, p.who, p.local, p.peer, p.id, p.head, p.noFlow, p.open = nil, fabrics.HostIdentity{}, local, peer, r.Queue, 0, false, 0
	p.trusted, p.proof, p.proving, p.doubted, p.jobs = true, nil, false, false, make(chan deferredJob, 1)
	p.room = int(min(r.HostSends, uint32(s.config.Depth), uint32(r.HostRoom)))
	p.entries = uint32(p.room)
	p.generation++
	for i := range s.pools {
		s.pools[i].open()
	}
	return p, nil
}

// attach gives a session its queue pair, in INIT, and posts receives.
func (s *Server) attach(p *session, q rdma.QueuePair) error {
	if s.closed {
		return fabrics.RejectNoResources
	}
	p.qp = q
	for i := range p.room {
		s.receive(p, int32(p.number*s.config.Depth+i))
	}
	return p.list.Post(p.qp)
}

// receive queues the receive of a slot.
func (s *Server) receive(p *session, slot int32) {
	id := ep.WorkID(p.generation, int(slot))
	if s.config.Capsule == 0 {
		p.list.Receive(id, s.commands.SGE(int(slot)))
		return
	}
	p.list.Receive(id, s.commands.SGE(int(slot)), s.sge(s.capsules[slot].Addr, s.config.Capsule))
}

// sge names bytes of the region.
func (s *Server) sge(addr uint64, n uint32) rdma.SGE {
	m := s.config.Endpoint.Memory
	return rdma.SGE{Addr: m.Addr() + addr, Length: n, LKey: m.LKey()}
}

// connected opens a session, and begins the commands that arrived before.
func (s *Server) connected(p *session) {
	if p.state == sessionConnecting {
		p.state, p.since = sessionOpen, s.now
		s.count.queues.Add(1)
		p.counted = true
		s.confirmed(p)
		s.admit(p)
	}
}

// queueForPosting adds the session to those with something to post.
func (s *Server) queueForPosting(p *session) {
	if !p.dirty {
		p.dirty = true
		s.dirty = append(s.dirty, p)
	}
}

// post posts the requests of all sessions. Receives come first, because hosts send their next
// commands as soon as they see the completions.
func (s *Server) post() {
	for _, p := range s.dirty {
		p.dirty = false
		if p.state != sessionOpen {
			continue
		}
		if err := p.list.Post(p.qp); err != nil {
			s.fail(p, err)
		}
	}
	s.dirty = s.dirty[:0]
}

// fail ends a queue because of its host, or because it failed.
func (s *Server) fail(p *session, cause error) {
	if p.state == sessionConnecting || p.state == sessionOpen {
		p.state, p.leaving.cause = sessionEnding, cause
		close(p.leaving.done)
	}
}

// errAdminGone ends the I/O queues of a host whose admin queue has ended.
var errAdminGone = errors.New("the host's admin queue has ended")

// leave destroys a queue pair whose connection is closed, and takes back the buffers that the RDMA
// device had for it. Buffers that the disk uses return later. After an error it may be called
// again.
func (s *Server) leave(p *session) error {
	if p.qp != nil {
		if err := p.qp.Close(); err != nil {
			return err
		}
		p.qp = nil
	}
	p.state = sessionDraining
	s.unproven.Remove(p)
	if p.counted {
		s.count.queues.Set(s.count.queues.Load() - 1)
		p.counted = false
	}
	p.list.Reset()
	p.proof = nil
	s.waiting -= p.blocked.Len()
	s.count.abandoned.Add(uint64(p.open))
	p.arrived.Skip(p.arrived.Len())
	p.blocked.Skip(p.blocked.Len())
	s.unhost(p)
	for _, d := range s.disks {
		s.cancelWaiting(&d.waiting, p)
		s.cancelWaiting(&d.unplaced, p)
	}
	for i := range 2 * s.config.Depth {
		if o := &s.operations[p.number*2*s.config.Depth+i]; o.state != opIdle && o.state != opDisk && o.state != opLater && o.state != opReserving {
			s.finish(o)
		}
	}
	s.drained(p)
	return nil
}

// drained frees the session when nothing is outstanding for it.
func (s *Server) drained(p *session) {
	if p.state == sessionDraining && len(p.idle) == 2*s.config.Depth {
		p.state = sessionFree
		for i := range s.pools {
			s.pools[i].shut()
		}
	}
}
