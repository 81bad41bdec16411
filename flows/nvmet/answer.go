package nvmet

import (
	"fmt"

	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
)

// answer posts the completion of a command, after the bytes for the host if it succeeded.
func (s *Server) answer(o *operation, status fabrics.Status) {
	p := o.session
	s.unfence(o)
	if p.state != sessionOpen {
		if p.state == sessionDraining {
			s.finish(o)
		} else {
			o.state = opAnswered // Server.leave finishes it
		}
		return
	}
	o.status = status
	if status != fabrics.Success {
		s.noteRefusal(o, status)
	}
	s.discharge(o)
	gives := status == fabrics.Success && o.gives()
	if gives {
		s.write(o)
	} else {
		s.release(o)
	}
	p.open--
	p.head = (p.head + 1) % p.entries
	o.state = opAnswered
	if o.hangup {
		s.await(o)
	}
	if status == fabrics.Success && o.disk != nil {
		s.count.latency.Record(uint64(max(0, s.now-o.since)))
	}
	s.complete(o)
}

// noteRefusal counts a command that failed.
func (s *Server) noteRefusal(o *operation, status fabrics.Status) {
	if h := o.session.host; h != nil {
		h.count.refused.Add(1)
	}
	switch {
	case status.Code() == fabrics.AsymmetricAccessInaccessible:
		s.count.inaccessible.Add(1)
		if d := o.disk; d != nil { // else its namespace was removed
			d.count.inaccessible.Add(1)
		}
	case status.Code() == fabrics.ReservationConflict:
		s.count.conflicts.Add(1)
		o.disk.count.conflicts.Add(1)
	case diskFault(status):
		s.count.failed.Add(1)
		if d := o.disk; d != nil {
			d.count.failed.Add(1)
		}
	default:
		s.count.refused.Add(1)
		if d := o.disk; d != nil {
			d.count.refused.Add(1)
		}
	}
}

// diskFault reports whether a status means that the disk failed.
func diskFault(status fabrics.Status) bool {
	switch status.Code() {
	case fabrics.WriteFault, fabrics.UnrecoveredRead, fabrics.CapacityExceeded, fabrics.InternalError:
		return true
	}
	return false
}

// gives reports whether a command returns bytes to the host. These bytes are in the second buffer.
func (o *operation) gives() bool {
	return o.buffers[1].where != nowhere && o.command.Opcode != fabrics.OpCompare
}

// write queues the WRITE of an operation's bytes to the host.
func (s *Server) write(o *operation) {
	p, d, b := o.session, &o.command.Data, &o.buffers[1]
	s.pass(b, atDevice)
	p.list.SendSGEs = append(p.list.SendSGEs, s.sge(b.frame.Addr, b.frame.Len))
	p.list.Sends = append(p.list.Sends, rdma.SendRequest{ID: s.id(o), Op: rdma.Write, SGEs: 1, RKey: d.Key, RemoteAddr: d.Address})
}

// complete queues the SEND of an operation's completion.
func (s *Server) complete(o *operation) {
	p := o.session
	c := fabrics.Completion{Result: o.result, SQHead: uint16(p.head), ID: o.command.ID, Status: o.status}
	if p.noFlow {
		c.SQHead = 0xffff
	}
	c.Put(s.responses.Bytes(int(o.number)))
	r := rdma.SendRequest{ID: s.id(o), Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1}
	if o.command.Data.Invalidate {
		r.Op, r.Immediate = rdma.SendInvalidate, rdma.Invalidate(o.command.Data.Key)
	}
	p.list.SendSGEs = append(p.list.SendSGEs, s.responses.SGE(int(o.number)))
	p.list.Sends = append(p.list.Sends, r)
	s.queueForPosting(p)
}

// takeSent processes completions of the RDMA device's sends, and returns their number.
func (s *Server) takeSent() (n int, err error) {
	if n, err = s.sent.Drain(s.moved); err != nil {
		err = fmt.Errorf("poll for transfers that are done: %w", err)
	}
	return n, err
}

// moved processes the completion of a READ or SEND, or of any failed request.
func (s *Server) moved(c *rdma.WorkCompletion) {
	generation, op := ep.SplitWorkID(c.ID)
	if op >= len(s.operations) {
		return
	}
	o := &s.operations[op]
	p := o.session
	switch {
	case p.generation != generation || p.state != sessionOpen:
	case c.Status != rdma.Success:
		d := &o.command.Data
		s.fail(p, fmt.Errorf("%d bytes of the host's at address %#x with rkey %#x: %w", d.Length, d.Address, d.Key, c.Err()))
	case o.state == opFetching:
		s.awaited(o)
		s.pass(&o.buffers[0], atWorker)
		s.count.brought.Add(uint64(o.needs[0]))
		s.rdmaReadDone(o)
	case o.state == opAnswered:
		s.arrived(o)
	}
}

// arrived records that the host has the completion of an operation.
func (s *Server) arrived(o *operation) {
	p := o.session
	s.tally(o)
	hangup := o.hangup
	s.finish(o)
	if hangup {
		s.fail(p, p.finalResponse())
		return
	}
	s.admit(p)
}

// tally counts a successful command.
func (s *Server) tally(o *operation) {
	if o.status != fabrics.Success || o.disk == nil {
		return
	}
	c, d := &s.count, &o.disk.count
	switch h := o.session.host; o.command.Opcode {
	case fabrics.OpRead:
		c.read.add(o.at.Length)
		d.read.add(o.at.Length)
		if h != nil {
			h.count.read.add(o.at.Length)
		}
	case fabrics.OpWrite:
		c.written.add(o.at.Length)
		d.written.add(o.at.Length)
		if h != nil {
			h.count.written.add(o.at.Length)
		}
		if o.command.Data.Place == fabrics.InCapsule {
			c.inCapsule.Add(o.at.Length)
		}
	case fabrics.OpFlush:
		c.flushes.Add(1)
		d.flushes.Add(1)
	case fabrics.OpWriteZeroes:
		c.zeroes.Add(1)
		d.zeroes.Add(1)
	case fabrics.OpDataset:
		c.discard.Add(1)
		d.discard.Add(1)
	case fabrics.OpCompare:
		c.compares.Add(1)
		d.compares.Add(1)
	default:
		c.reservations.Add(1)
		d.reservations.Add(1)
	}
}
