package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
	"github.com/unifiedd/unifiedd/umem"
)

// operation is a request in progress.
type operation struct {
	session *session
	state   opState
	reason  protocol.Reason // why it is refused; None if it is not
	cache   uint8
	exact   bool  // it reads exactly the requested bytes, and they are not cached
	n       int32 // its pieces
	missing int32 // those being read
	request protocol.Request
	at      int64 // time of arrival
}

type opState uint8

const (
	opIdle     opState = iota
	opReading          // waits for the disk
	opAnswered         // waits for the completion of its answer
)

// piece is a buffer in use by an operation.
type piece struct {
	buffer int32
	next   int32 // the next piece that waits for the buffer
}

// piecesOf returns the pieces of an operation.
func (s *Server) piecesOf(op int32) []piece {
	first := int(op) * s.plan.most
	return s.pieces[first : first+int(s.operations[op].n)]
}

// begin begins requests while there are buffers, one of each client by turns.
func (s *Server) begin() (n int) {
	for idle := 0; s.waiting > 0 && idle < len(s.sessions); {
		p := &s.sessions[s.turn]
		if s.beginOne(p) {
			n, idle = n+1, 0
		} else {
			idle++
		}
		if s.turn++; s.turn == len(s.sessions) {
			s.turn = 0
		}
	}
	return n
}

// beginOne begins a client's next request, if there is one and it can begin.
func (s *Server) beginOne(p *session) bool {
	if p.waiting() == 0 || len(p.idle) == 0 {
		return false
	}
	a := p.first()
	var c cut
	if a.reason == protocol.None {
		c = s.plan.cut(a.request.Offset, uint64(a.request.Length))
		if !s.caches[c.cache].share.take(p.number, c.n) {
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

// gather assigns to an operation the buffers of its cut. They are already counted for its client.
func (s *Server) gather(op int32, c cut) {
	o := &s.operations[op]
	o.cache, o.n, o.missing = uint8(c.cache), int32(c.n), 0
	for k := range c.n {
		at, length := c.piece(k)
		s.use(op, k, at, uint32(length))
	}
}

// again repeats the read of an operation with exactly the requested bytes, in at most as many
// buffers of the same kind. With caching, a read covers more than the requested bytes and serves
// several operations, so a failed read may be due to a block that only another operation requested.
func (s *Server) again(op int32) {
	o := &s.operations[op]
	s.release(op)
	s.count.retried.Add(1)
	o.exact, o.reason = true, protocol.None
	cache, length := &s.caches[o.cache], uint64(o.request.Length)
	c := cut{cache: int(o.cache), n: pieces(length, cache.size), first: o.request.Offset, step: cache.size, end: o.request.Offset + length}
	cache.share.take(o.session.number, c.n) // succeeds: release has returned at least as many
	s.gather(op, c)
}

// use assigns to a piece of an operation the buffer with these bytes of the target. If no buffer
// has them, use reads them.
func (s *Server) use(op int32, k int, at uint64, length uint32) {
	cache := &s.caches[s.operations[op].cache]
	number := op*int32(s.plan.most) + int32(k)
	i := none
	if cache.keep && !s.operations[op].exact {
		if i = cache.find(at); i != none && cache.buffers[i].length < length {
			cache.forget(i)
			i = none
		}
	}
	if i == none {
		i = cache.take()
		s.read(op, i, at, length)
		cache.count.misses.Add(1)
	} else {
		cache.buffers[i].recent = true
		cache.count.hits.Add(1)
	}
	b := &cache.buffers[i]
	b.users++
	s.pieces[number] = piece{buffer: i, next: none}
	if b.reading {
		s.operations[op].missing++
		s.pieces[number].next, b.waiting = b.waiting, number
	}
}

// answer answers an operation whose data is complete, or refuses it.
func (s *Server) answer(op int32) {
	o := &s.operations[op]
	p := o.session
	if p.state != sessionOpen {
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
	p := o.session
	s.release(op)
	s.count.refused[o.reason].Add(1)
	p.count.refused[o.reason].Add(1)
	cell := s.plan.answerCell(op)
	protocol.PutResponse(s.cells.Bytes(cell), &protocol.Response{ID: o.request.ID, Status: o.reason})
	p.list.SendSGEs = append(p.list.SendSGEs, s.cells.SGE(cell))
	p.list.Sends = append(p.list.Sends, rdma.SendRequest{ID: s.id(p, op), Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1})
}

// id returns the ID of an operation's work requests.
func (s *Server) id(p *session, op int32) uint64 {
	return ep.WorkID(p.generation, int(op))
}

// write queues WRITEs of an operation's bytes. The last one has the request's ID as its immediate.
func (s *Server) write(op int32) {
	o := &s.operations[op]
	p, cache, memory := o.session, &s.caches[o.cache], s.config.Endpoint.Memory
	r := rdma.SendRequest{ID: s.id(p, op), Op: rdma.Write, RKey: o.request.RKey, RemoteAddr: o.request.Address}
	at, end := o.request.Offset, o.request.Offset+uint64(o.request.Length)
	length := uint64(0)
	for _, one := range s.piecesOf(op) {
		b := &cache.buffers[one.buffer]
		n := min(end, b.at+uint64(b.length)) - at
		if int(r.SGEs) == s.perRequest {
			p.list.Sends = append(p.list.Sends, r)
			r.RemoteAddr, r.SGEs, length = r.RemoteAddr+length, 0, 0
		}
		p.list.SendSGEs = append(p.list.SendSGEs, rdma.SGE{Addr: memory.Addr() + b.start + at - b.at, Length: uint32(n), LKey: memory.LKey()})
		r.SGEs, at, length = r.SGEs+1, at+n, length+n
		b.writes++
		cache.hold(one.buffer, s.sending)
	}
	r.Op, r.Flags = rdma.WriteImmediate, rdma.Signaled
	binary.BigEndian.PutUint32(r.Immediate[:], o.request.ID)
	p.list.Sends = append(p.list.Sends, r)
}

// finish ends an operation: its answer has arrived, or never will.
func (s *Server) finish(op int32) {
	o := &s.operations[op]
	p := o.session
	s.release(op)
	o.state = opIdle
	p.idle = append(p.idle, op)
	s.leave(p)
}

// release ends the use of an operation's buffers.
func (s *Server) release(op int32) {
	o := &s.operations[op]
	cache := &s.caches[o.cache]
	for _, one := range s.piecesOf(op) {
		b := &cache.buffers[one.buffer]
		b.users--
		if o.state == opAnswered && o.reason == protocol.None {
			b.writes--
		}
		switch {
		case b.users == 0 && b.found:
			cache.hold(one.buffer, s.cached)
		case b.users == 0:
			cache.discard(one.buffer)
		case b.writes == 0:
			cache.hold(one.buffer, s.config.Worker)
		}
	}
	cache.share.give(o.session.number, int(o.n))
	o.n = 0
}

// read queues a read of the target into an empty buffer. Consecutive pieces of an operation become
// one read.
func (s *Server) read(op, i int32, at uint64, length uint32) {
	cache := int(s.operations[op].cache)
	h := &s.caches[cache]
	b := &h.buffers[i]
	b.at, b.length, b.reading, b.recent, b.users, b.waiting = at, length, true, false, 0, none
	if h.keep && !s.operations[op].exact {
		h.list(i)
	}
	f := umem.Frame{Addr: b.start, Len: length}
	*s.region.Side(f) = umem.Side{Target: s.target, Block: at, Token: token(op, cache, i)}
	s.chain(op, cache, at)
	s.reads = append(s.reads, f)
}

// chain merges the last queued read with the next one, which begins at an offset, if the two fit
// together. Extents are long enough without that.
func (s *Server) chain(op int32, cache int, at uint64) {
	s.links++
	if cache == frameCache && len(s.reads) > s.submitted && s.links < s.longest {
		last := &s.reads[len(s.reads)-1]
		side := s.region.Side(*last)
		if side.Token>>32 == uint64(op) && side.Block+uint64(last.Len) == at {
			last.Options |= umem.More
			return
		}
	}
	s.links = 0
}

// token encodes the buffer for the read, and the operation that first requested it.
func token(op int32, cache int, buffer int32) uint64 {
	return uint64(uint32(op))<<32 | uint64(cache)<<31 | uint64(buffer)
}

func readToken(t uint64) (cache int, buffer int32) { return int(t >> 31 & 1), int32(t & (1<<31 - 1)) }

// submit passes queued reads to the disk's queue.
func (s *Server) submit() {
	if s.submitted == len(s.reads) {
		return
	}
	n := s.queue.Supply(s.reads[s.submitted:])
	for _, f := range s.reads[s.submitted : s.submitted+n] {
		cache, i := readToken(s.region.Side(f).Token)
		s.caches[cache].buffers[i].holder = nil
		s.caches[cache].count.reads.Add(1)
	}
	s.submitted += n
	if s.submitted == len(s.reads) {
		s.reads, s.submitted = s.reads[:0], 0
	} else if s.submitted > cap(s.reads)/2 {
		s.reads, s.submitted = s.reads[:copy(s.reads, s.reads[s.submitted:])], 0
	}
}

// turnBytes limits the data from the disk that one round answers; a round answers at least one
// buffer. A disk completes many reads together. While the server sends all of them at once, it does
// not receive the requests that clients send as soon as they have the first answer, and the disk is
// idle. docs/background/benchmarks.md has figures.
const turnBytes = 16 << 10

// takeReads takes completed reads from the disk, and answers the operations that wait for them. It
// returns the number of buffers.
func (s *Server) takeReads() (n int) {
	for bytes := uint32(0); bytes < turnBytes && s.queue.Recv(s.ready[:]) > 0; n++ {
		bytes += s.ready[0].Len
		s.filled(s.ready[0])
	}
	return n
}

// filled processes a buffer from the disk's queue.
func (s *Server) filled(f umem.Frame) {
	cache, i := readToken(s.region.Side(f).Token)
	h := &s.caches[cache]
	b := &h.buffers[i]
	b.holder, b.reading = s.config.Worker, false
	wrong := f.Err() != nil
	if wrong {
		h.count.failed.Add(1)
		h.forget(i)
	} else {
		h.count.bytesRead.Add(uint64(b.length))
	}
	next := b.waiting
	b.waiting = none
	for next != none {
		number := next
		next = s.pieces[number].next
		op := number / int32(s.plan.most)
		o := &s.operations[op]
		if wrong {
			o.reason = protocol.DiskError
		}
		if o.missing--; o.missing == 0 {
			s.gathered(op)
		}
	}
}

// gathered continues with an operation whose reads are all done.
func (s *Server) gathered(op int32) {
	o := &s.operations[op]
	if o.reason == protocol.DiskError && !o.exact && s.plan.keep && o.session.state == sessionOpen {
		s.again(op)
		return
	}
	s.answer(op)
}

// takeRequests processes received requests, and returns the number of completions.
func (s *Server) takeRequests() (n int, err error) {
	if n, err = s.came.Drain(s.arrive); err != nil {
		err = fmt.Errorf("poll for requests: %w", err)
	}
	return n, err
}

// arrive processes one completion of a receive.
func (s *Server) arrive(c *rdma.WorkCompletion) {
	generation, cell := ep.SplitWorkID(c.ID)
	if cell >= s.plan.clients*s.plan.receives() {
		return
	}
	p := &s.sessions[cell/s.plan.receives()]
	if p.state != sessionOpen || p.generation != generation {
		return
	}
	if c.Status != rdma.Success {
		s.fail(p, fmt.Errorf("a receive: %w", c.Err()))
		return
	}
	a := queuedRequest{at: s.now}
	reason := protocol.BadKind
	if c.Kind == rdma.Received {
		a.request, reason = protocol.ParseRequest(s.cells.Bytes(cell)[:min(c.Length, protocol.HeaderLen)])
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

// offend ends a client that broke the protocol.
func (s *Server) offend(p *session, reason protocol.Reason) {
	s.count.refused[reason].Add(1)
	p.count.refused[reason].Add(1)
	s.fail(p, reason)
}

// takeSent processes completions of answers, and returns their number.
func (s *Server) takeSent() (n int, err error) {
	if n, err = s.sent.Drain(s.arrived); err != nil {
		err = fmt.Errorf("poll for writes that are done: %w", err)
	}
	return n, err
}

// arrived processes one completion of an answer.
func (s *Server) arrived(c *rdma.WorkCompletion) {
	generation, op := ep.SplitWorkID(c.ID)
	if op >= len(s.operations) {
		return
	}
	o := &s.operations[op]
	p := o.session
	switch {
	case p.state != sessionOpen || p.generation != generation || o.state != opAnswered:
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
	s.finish(int32(op))
}

// failure returns the reason for which an answer did not reach its client.
func failure(c *rdma.WorkCompletion, o *operation) error {
	err := fmt.Errorf("write %d bytes to address %#x with rkey %#x: %w", o.request.Length, o.request.Address, o.request.RKey, c.Err())
	if errors.Is(err, rdma.RemoteAccess) {
		return fmt.Errorf("%w: %w", protocol.NotGranted, err)
	}
	return err
}
