package blocks

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// read has bytes of the target read into an empty buffer. Pieces of one operation that follow each other on the target are one read.
func (s *Server) read(op, i int32, at uint64, length uint32) {
	shelf := int(s.operations[op].shelf)
	h := &s.shelves[shelf]
	b := &h.buffers[i]
	b.at, b.length, b.reading, b.recent, b.users, b.waiting = at, length, true, false, 0, none
	if h.keep && !s.operations[op].exact {
		h.list(i)
	}
	f := umem.Frame{Addr: b.start, Len: length}
	*s.region.Side(f) = umem.Side{Target: s.target, Block: at, Token: token(op, shelf, i)}
	s.chain(op, shelf, at)
	s.reads = append(s.reads, f)
}

// chain has the last read, which is not submitted, go on in the next one, which begins at an offset, if that fits. Extents are long
// enough by themselves.
func (s *Server) chain(op int32, shelf int, at uint64) {
	s.links++
	if shelf == frameShelf && len(s.reads) > s.submitted && s.links < s.longest {
		last := &s.reads[len(s.reads)-1]
		side := s.region.Side(*last)
		if side.Token>>32 == uint64(op) && side.Block+uint64(last.Len) == at {
			last.Options |= umem.More
			return
		}
	}
	s.links = 0
}

// A token says which buffer is read, and for which operation first.
func token(op int32, shelf int, buffer int32) uint64 {
	return uint64(uint32(op))<<32 | uint64(shelf)<<31 | uint64(buffer)
}

func readToken(t uint64) (shelf int, buffer int32) { return int(t >> 31 & 1), int32(t & (1<<31 - 1)) }

// submit gives the disk's queue what is to be read.
func (s *Server) submit() {
	if s.submitted == len(s.reads) {
		return
	}
	n := s.queue.Supply(s.reads[s.submitted:])
	for _, f := range s.reads[s.submitted : s.submitted+n] {
		shelf, i := readToken(s.region.Side(f).Token)
		s.shelves[shelf].buffers[i].holder = nil
		s.shelves[shelf].count.reads.Add(1)
	}
	s.submitted += n
	if s.submitted == len(s.reads) {
		s.reads, s.submitted = s.reads[:0], 0
	} else if s.submitted > cap(s.reads)/2 {
		s.reads, s.submitted = s.reads[:copy(s.reads, s.reads[s.submitted:])], 0
	}
}

// turnBytes is how much of what the disk has read a round answers, one buffer at least. Disks complete many reads together: while all of those are sent
// in one go, nobody looks for the requests that clients send as soon as they have the first, and the disk has nothing to do. docs/benchmarks/blocks.md has figures.
const turnBytes = 16 << 10

// takeReads takes some of what the disk has read, and answers who waits for it. It returns how many buffers there were.
func (s *Server) takeReads() (n int) {
	for bytes := uint32(0); bytes < turnBytes && s.queue.Recv(s.ready[:]) > 0; n++ {
		bytes += s.ready[0].Len
		s.filled(s.ready[0])
	}
	return n
}

// filled takes a buffer from the disk's queue.
func (s *Server) filled(f umem.Frame) {
	shelf, i := readToken(s.region.Side(f).Token)
	h := &s.shelves[shelf]
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

// gathered goes on with an operation for which nothing is being read any more.
func (s *Server) gathered(op int32) {
	o := &s.operations[op]
	if o.reason == protocol.DiskError && !o.exact && s.plan.keep && o.seat.state == seatTaken {
		s.again(op)
		return
	}
	s.answer(op)
}
