package nvmet

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
)

// Causes of the end of a host's queue.
var (
	errShort   = errors.New("a capsule shorter than a command")
	errOverrun = errors.New("more commands than the queue has entries")
	errKind    = errors.New("a message that is no capsule")
)

// takeCapsules processes received capsules, and returns the number of completions.
func (s *Server) takeCapsules() (n int, err error) {
	if n, err = s.came.Drain(s.arrive); err != nil {
		err = fmt.Errorf("poll for commands: %w", err)
	}
	return n, err
}

// arrive processes one completion of a receive.
func (s *Server) arrive(c *rdma.WorkCompletion) {
	generation, slot := ep.SplitWorkID(c.ID)
	if slot >= s.config.Sessions*s.config.Depth {
		return
	}
	p := &s.sessions[slot/s.config.Depth]
	switch {
	case p.generation != generation || p.state != sessionOpen && p.state != sessionConnecting:
	case c.Status != rdma.Success:
		s.fail(p, fmt.Errorf("a receive: %w", c.Err()))
	case c.Kind != rdma.Received:
		s.fail(p, errKind)
	case c.Length < fabrics.CommandLen:
		s.fail(p, errShort)
	default:
		p.arrived.Push(queuedRequest{int32(slot), c.Length})
		s.admit(p)
	}
}

// admit begins commands while there are unused operations.
func (s *Server) admit(p *session) {
	for p.state == sessionOpen && p.arrived.Len() > 0 && len(p.idle) > 0 {
		a := p.arrived.Pop()
		if p.open == p.room {
			s.fail(p, errOverrun)
			return
		}
		p.open++
		last := len(p.idle) - 1
		o := &s.operations[p.idle[last]]
		p.idle = p.idle[:last]
		s.count.commands.Add(1)
		s.accept(o, a)
	}
}

// accept parses the command of a capsule and executes it.
func (s *Server) accept(o *operation, a queuedRequest) {
	p := o.session
	command, status := fabrics.CommandOf(s.commands.Bytes(int(a.slot)))
	*o = operation{session: p, number: o.number, command: command, slot: none, since: s.now}
	if p.host != nil {
		p.host.heard = s.now
		p.host.count.commands.Add(1)
	}
	if status == fabrics.Success {
		status = o.command.Data.CheckCapsule(a.length - fabrics.CommandLen)
	}
	if status == fabrics.Success && o.command.Data.Place == fabrics.InCapsule {
		o.slot = a.slot
		o.buffers[0] = buffer{frame: s.capsules[a.slot], kind: capsule, where: atDevice}
		o.buffers[0].frame.Len = o.command.Data.Length
		s.pass(&o.buffers[0], atWorker)
		s.count.brought.Add(uint64(o.command.Data.Length))
	} else {
		s.receive(p, a.slot)
		s.queueForPosting(p)
	}
	if status != fabrics.Success {
		s.answer(o, status)
		return
	}
	s.dispatch(o)
}

// dispatch executes a command.
func (s *Server) dispatch(o *operation) {
	switch h := o.session.host; {
	case o.command.Opcode == fabrics.OpFabrics && o.command.Fabrics == fabrics.Connect:
		s.rdmaRead(o, fabrics.ConnectDataLen)
	case h == nil:
		s.answer(o, fabrics.CommandSequence|fabrics.DoNotRetry)
	case o.session.proof != nil && o.authenticates():
		s.authenticate(o)
	case !o.session.trusted:
		s.answer(o, fabrics.AuthRequired|fabrics.DoNotRetry)
	case o.command.Opcode == fabrics.OpFabrics || o.session.id == fabrics.AdminQueue:
		s.administer(o)
	default:
		s.io(o)
	}
}

// rdmaRead makes the data of a command available, if it has the right length.
func (s *Server) rdmaRead(o *operation, n uint32) {
	switch d := &o.command.Data; {
	case d.Length != n:
		s.answer(o, fabrics.InvalidSGLLength|fabrics.DoNotRetry)
	case d.Place == fabrics.InCapsule:
		s.rdmaReadDone(o)
	default:
		s.need(o, n, 0)
	}
}

// acquired continues with an operation that has its buffers.
func (s *Server) acquired(o *operation) {
	switch {
	case o.needs[0] > 0:
		s.fetch(o)
	case o.needs[1] > 0 && o.disk != nil && o.command.Opcode == fabrics.OpReservationReport:
		s.reserve(o)
	case o.needs[1] > 0 && o.disk != nil:
		s.place(o)
	case o.authenticates():
		s.challenge(o)
	default:
		s.fill(o)
	}
}

// fetch queues the RDMA READ of a command's data from the host's memory.
func (s *Server) fetch(o *operation) {
	p, d, b := o.session, &o.command.Data, &o.buffers[0]
	s.pass(b, atDevice)
	o.state = opFetching
	s.await(o)
	p.list.SendSGEs = append(p.list.SendSGEs, s.sge(b.frame.Addr, b.frame.Len))
	p.list.Sends = append(p.list.Sends, rdma.SendRequest{ID: s.id(o), Op: rdma.Read, Flags: rdma.Signaled, SGEs: 1, RKey: d.Key, RemoteAddr: d.Address})
	s.queueForPosting(p)
}

// id returns the ID of an operation's work requests.
func (s *Server) id(o *operation) uint64 {
	return ep.WorkID(o.session.generation, int(o.number))
}

// rdmaReadDone continues with an operation whose data has arrived.
func (s *Server) rdmaReadDone(o *operation) {
	switch {
	case o.authenticates():
		s.examine(o)
	case o.command.Opcode == fabrics.OpFabrics:
		s.connect(o)
	case o.command.Opcode == fabrics.OpWrite:
		s.place(o)
	case o.command.Opcode == fabrics.OpDataset:
		s.nextRange(o)
	case fabrics.ReservationData(o.command.Opcode) > 0:
		s.reserve(o)
	case o.buffers[1].where == nowhere: // a Compare with its data in the capsule
		s.need(o, 0, uint32(o.at.Length))
	default:
		s.place(o)
	}
}
