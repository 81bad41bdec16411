package blocks

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
)

// session is a place for one client. It belongs to the server's thread, except who.
type session struct {
	number     int
	state      sessionState
	generation uint32 // of the client: it distinguishes completions of earlier clients
	qp         rdma.QueuePair
	may        Range
	leaving    *closeState // of the client

	arrived    []queuedRequest // a ring of requests that have not begun
	head, tail uint32
	open       int     // unanswered requests, including those in arrived
	idle       []int32 // unused operations
	operations int     // number of all operations

	list  ep.PostList
	dirty bool // it is in Server.dirty

	who   clientInfo      // under Server.mu
	count *clientCounters // under Server.mu; the server's thread, which alone sets it, may read it without
}

// closeState is the state of a client's end.
type closeState struct {
	done  chan struct{} // closed when the cause is set
	cause error         // nil: the client left in good order
	known bool          // cause is set; server's thread only
}

type sessionState uint8

const (
	sessionFree     sessionState = iota
	sessionOpen                  // has a client, connected or not yet
	sessionDraining              // the client is gone, and the disk still reads for it
	sessionStuck                 // the queue pair could not be closed
)

// queuedRequest is a request that waits to begin, or to be refused.
type queuedRequest struct {
	request protocol.Request
	reason  protocol.Reason
	held    bool // counted in Waited
	at      int64
}

// init allocates the requests of a session.
func (p *session) init(s *Server, number int) {
	ops, window := s.plan.operations(), s.plan.window
	p.number, p.operations = number, ops
	p.arrived = make([]queuedRequest, window)
	for i := ops - 1; i >= 0; i-- {
		n := int32(number*ops + i)
		s.operations[n].session = p
		p.idle = append(p.idle, n)
	}
	p.list = ep.NewPostList(s.sends(), ops*s.plan.most, s.plan.receives(), s.plan.receives())
	p.count = newClientCounters()
}

func (p *session) waiting() int { return int(p.tail - p.head) }

func (p *session) push(a queuedRequest) {
	p.arrived[p.tail%uint32(len(p.arrived))] = a
	p.tail++
}

func (p *session) first() *queuedRequest { return &p.arrived[p.head%uint32(len(p.arrived))] }

// busy returns how many operations are in use.
func (p *session) busy() int { return p.operations - len(p.idle) }

// queueForPosting adds the session to those with something to post.
func (s *Server) queueForPosting(p *session) {
	if !p.dirty {
		p.dirty = true
		s.dirty = append(s.dirty, p)
	}
}

// post posts the requests of all sessions. Receives come first, because clients send their next
// requests as soon as they see the answers.
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

// receive queues the receive of a control buffer.
func (s *Server) receive(p *session, cell int) {
	p.list.Receive(ep.WorkID(p.generation, cell), s.cells.SGE(cell))
}

var errFull = errors.New("there is no place for another client: all are taken")

// take takes a free session for a client. Its queue pair is made afterwards.
func (s *Server) take(may Range, w clientInfo) (*session, error) {
	if s.closed {
		return nil, protocol.Closing
	}
	for i := range s.sessions {
		p := &s.sessions[i]
		if p.state != sessionFree {
			continue
		}
		p.state, p.may, p.leaving = sessionOpen, may, &closeState{done: make(chan struct{})}
		p.generation++
		p.head, p.tail, p.open = 0, 0, 0
		s.setClient(p, w)
		return p, nil
	}
	return nil, errFull
}

// attach gives the session its queue pair, in INIT, and posts receives.
func (s *Server) attach(p *session, q rdma.QueuePair) error {
	if p.state != sessionOpen || s.closed {
		return protocol.Closing
	}
	p.qp = q
	for i := range s.plan.receives() {
		s.receive(p, p.number*s.plan.receives()+i)
	}
	if err := p.list.Post(p.qp); err != nil {
		p.qp = nil
		return err
	}
	return nil
}

// fail ends a client because of an error.
func (s *Server) fail(p *session, cause error) {
	s.count.ended.Add(1)
	if err := s.end(p, cause); err != nil {
		s.config.Log.Error("could not close a client's queue pair", "server", s.config.Name, "client", p.who.name, "err", err)
	}
}

// end closes a client's queue pair and takes back the buffers being written to it. Buffers that the
// disk is reading into return later. After an error it may be called again.
func (s *Server) end(p *session, cause error) error {
	if p.state == sessionFree || p.state == sessionDraining {
		return nil
	}
	if !p.leaving.known {
		p.leaving.cause, p.leaving.known = cause, true
	}
	if p.qp != nil {
		if err := p.qp.Close(); err != nil {
			p.state = sessionStuck
			return err
		}
		p.qp = nil
	}
	p.state = sessionDraining
	p.list.Reset()
	s.waiting -= p.waiting()
	s.count.abandoned.Add(uint64(p.open))
	p.head = p.tail
	for i := range p.operations {
		n := int32(p.number*p.operations + i)
		if o := &s.operations[n]; o.state == opAnswered {
			if o.reason == protocol.None {
				s.count.abandoned.Add(1)
			}
			s.finish(n)
		}
	}
	close(p.leaving.done)
	s.leave(p)
	return nil
}

// leave frees the session of a client that is gone, when nothing is outstanding for it.
func (s *Server) leave(p *session) {
	if p.state == sessionDraining && p.busy() == 0 {
		p.state = sessionFree
		s.setClient(p, clientInfo{})
	}
}
