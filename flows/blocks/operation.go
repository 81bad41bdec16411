package blocks

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// operation is a request that was begun.
type operation struct {
	seat    *session
	state   opState
	reason  protocol.Reason // why it is to be refused
	shelf   uint8
	exact   bool  // it reads just what it asks for, and nothing of it is kept
	n       int32 // its pieces
	missing int32 // of those, how many are being read
	request protocol.Request
	at      int64 // when it arrived
}

type opState uint8

const (
	opIdle     opState = iota
	opReading          // from the disk, what is missing
	opAnswered         // and the answer has not arrived yet
)

// piece is a buffer that an operation uses.
type piece struct {
	buffer int32
	next   int32 // the next piece that waits for the same buffer
}

// piecesOf are those of an operation.
func (s *Server) piecesOf(op int32) []piece {
	first := int(op) * s.plan.most
	return s.pieces[first : first+int(s.operations[op].n)]
}

// begin begins requests as long as there are buffers for them, one of each client in turn.
func (s *Server) begin() (n int) {
	for idle := 0; s.waiting > 0 && idle < len(s.seats); {
		p := &s.seats[s.turn]
		if s.beginOne(p) {
			n, idle = n+1, 0
		} else {
			idle++
		}
		if s.turn++; s.turn == len(s.seats) {
			s.turn = 0
		}
	}
	return n
}

// beginOne begins a client's next request, if there is one and it can be begun.
func (s *Server) beginOne(p *session) bool {
	if p.waiting() == 0 || len(p.idle) == 0 {
		return false
	}
	a := p.first()
	var c cut
	if a.reason == protocol.None {
		c = s.plan.cut(a.request.Offset, uint64(a.request.Length))
		if !s.shelves[c.shelf].share.take(p.number, c.n) {
			if !a.held {
				a.held = true
				s.count.waited.Add(1)
			}
			return false
		}
	}
	p.head++
	s.waiting--
	last := len(p.idle) - 1
	op := p.idle[last]
	p.idle = p.idle[:last]
	o := &s.operations[op]
	o.state, o.exact, o.reason, o.request, o.at = opReading, false, a.reason, a.request, a.at
	s.gather(op, c)
	if o.missing == 0 {
		s.answer(op)
	}
	return true
}

// gather has an operation use the buffers that it is cut into, which were counted for its client.
func (s *Server) gather(op int32, c cut) {
	o := &s.operations[op]
	o.shelf, o.n, o.missing = uint8(c.shelf), int32(c.n), 0
	for k := range c.n {
		at, length := c.piece(k)
		s.use(op, k, at, uint32(length))
	}
}

// again has an operation read just what it asks for, in as many buffers of the same kind as it had, or fewer. Where what was read is kept,
// more is read than is asked for, by one operation for others, and a block that cannot be read may be in what only another asks for.
func (s *Server) again(op int32) {
	o := &s.operations[op]
	s.release(op)
	s.count.retried.Add(1)
	o.exact, o.reason = true, protocol.None
	shelf, length := &s.shelves[o.shelf], uint64(o.request.Length)
	c := cut{shelf: int(o.shelf), n: pieces(length, shelf.size), first: o.request.Offset, step: shelf.size, end: o.request.Offset + length}
	shelf.share.take(o.seat.number, c.n) // release has just given as many
	s.gather(op, c)
}

// use has a piece of an operation use the buffer with some bytes of the target, which are read if they are in none.
func (s *Server) use(op int32, k int, at uint64, length uint32) {
	shelf := &s.shelves[s.operations[op].shelf]
	number := op*int32(s.plan.most) + int32(k)
	i := none
	if shelf.keep && !s.operations[op].exact {
		if i = shelf.find(at); i != none && shelf.buffers[i].length < length {
			shelf.forget(i)
			i = none
		}
	}
	if i == none {
		i = shelf.take()
		s.read(op, i, at, length)
		shelf.count.misses.Add(1)
	} else {
		shelf.buffers[i].recent = true
		shelf.count.hits.Add(1)
	}
	b := &shelf.buffers[i]
	b.users++
	s.pieces[number] = piece{buffer: i, next: none}
	if b.reading {
		s.operations[op].missing++
		s.pieces[number].next, b.waiting = b.waiting, number
	}
}

// answer answers an operation that has all it needs, or is to be refused.
func (s *Server) answer(op int32) {
	o := &s.operations[op]
	p := o.seat
	if p.state != seatTaken {
		s.finish(op)
		return
	}
	o.state = opAnswered
	p.open--
	s.queueForPosting(p)
	if o.reason != protocol.None {
		s.refuse(op)
		return
	}
	s.write(op)
}

// refuse queues a response.
func (s *Server) refuse(op int32) {
	o := &s.operations[op]
	p := o.seat
	s.release(op)
	s.count.refused[o.reason].Add(1)
	p.count.refused[o.reason].Add(1)
	cell := s.plan.answerCell(op)
	protocol.PutResponse(s.cells.bytes(cell), &protocol.Response{ID: o.request.ID, Status: o.reason})
	p.sges = append(p.sges, s.cells.sge(cell))
	p.sends = append(p.sends, rdma.SendRequest{ID: s.id(p, op), Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1})
}

// id is that of an operation's work requests.
func (s *Server) id(p *session, op int32) uint64 {
	return uint64(p.generation)<<32 | uint64(uint32(op))
}

// write queues WRITEs of an operation's bytes, the last with its id as immediate.
func (s *Server) write(op int32) {
	o := &s.operations[op]
	p, shelf, memory := o.seat, &s.shelves[o.shelf], s.config.Endpoint.Memory
	r := rdma.SendRequest{ID: s.id(p, op), Op: rdma.Write, RKey: o.request.RKey, RemoteAddr: o.request.Address}
	at, end := o.request.Offset, o.request.Offset+uint64(o.request.Length)
	length := uint64(0)
	for _, one := range s.piecesOf(op) {
		b := &shelf.buffers[one.buffer]
		n := min(end, b.at+uint64(b.length)) - at
		if int(r.SGEs) == s.perRequest {
			p.sends = append(p.sends, r)
			r.RemoteAddr, r.SGEs, length = r.RemoteAddr+length, 0, 0
		}
		p.sges = append(p.sges, rdma.SGE{Addr: memory.Addr() + b.start + at - b.at, Length: uint32(n), LKey: memory.LKey()})
		r.SGEs, at, length = r.SGEs+1, at+n, length+n
		b.writes++
		shelf.hold(one.buffer, s.sending)
	}
	r.Op, r.Flags = rdma.WriteImmediate, rdma.Signaled
	binary.BigEndian.PutUint32(r.Immediate[:], o.request.ID)
	p.sends = append(p.sends, r)
}

// finish notes that an operation is over: its answer has arrived, or never will.
func (s *Server) finish(op int32) {
	o := &s.operations[op]
	p := o.seat
	s.release(op)
	o.state = opIdle
	p.idle = append(p.idle, op)
	s.leave(p)
}

// release has an operation use no buffers any more.
func (s *Server) release(op int32) {
	o := &s.operations[op]
	shelf := &s.shelves[o.shelf]
	for _, one := range s.piecesOf(op) {
		b := &shelf.buffers[one.buffer]
		b.users--
		if o.state == opAnswered && o.reason == protocol.None {
			b.writes--
		}
		switch {
		case b.users == 0 && b.found:
			shelf.hold(one.buffer, s.cached)
		case b.users == 0:
			shelf.discard(one.buffer)
		case b.writes == 0:
			shelf.hold(one.buffer, s.config.Worker)
		}
	}
	shelf.share.give(o.seat.number, int(o.n))
	o.n = 0
}
