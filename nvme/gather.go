package nvme

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// gather fills in the submission of a chain: the pieces not yet transferred, with pieces joined
// that are adjacent in memory. One piece alone needs no list. The kernel copies the list when it
// reads the submission (IORING_FEAT_SUBMIT_STABLE).
func (q *Queue) gather(i uint32, s *sqe) {
	o := &q.ops[i]
	vecs := q.scratch.pieces[int(i)*q.pieces:][:0:q.pieces]
	skip, fixed := o.done, !q.unregistered
	for _, f := range q.chain(i) {
		n := uint64(f.Len)
		if skip >= n {
			skip -= n
			continue
		}
		vecs = q.joinPiece(vecs, f.Addr+skip, n-skip)
		skip = 0
	}
	s.bufIndex = q.buffers.of(vecs[0].base - q.base)
	for _, v := range vecs {
		fixed = fixed && q.buffers.of(v.base-q.base) == s.bufIndex && q.buffers.same(v.base-q.base, v.len)
	}
	if len(vecs) == 1 && fixed {
		s.addr, s.len = vecs[0].base, uint32(vecs[0].len)
		return
	}
	s.addr, s.len = vecsAddress(vecs), uint32(len(vecs))
	s.opcode = gatherCode(o.kind, fixed && q.granted.GatherFixed)
	if s.opcode == opReadv || s.opcode == opWritev {
		s.bufIndex = 0
		q.stats.Own.Pinned++
	}
}

// joinPiece appends a piece, or lengthens the last one if it is adjacent in the same registered buffer.
func (q *Queue) joinPiece(vecs []iovec, addr, n uint64) []iovec {
	if k := len(vecs) - 1; k >= 0 {
		start := vecs[k].base - q.base
		if start+vecs[k].len == addr && q.buffers.of(start) == q.buffers.of(addr) {
			vecs[k].len += n
			return vecs
		}
	}
	return append(vecs, iovec{base: q.base + addr, len: n})
}

// gatherCode returns the opcode for a list of pieces.
func gatherCode(k kind, fixed bool) uint8 {
	switch {
	case k == writing && fixed:
		return opWritevFixed
	case k == writing:
		return opWritev
	case fixed:
		return opReadvFixed
	}
	return opReadv
}

// kind is what an operation does.
type kind uint8

const (
	idle kind = iota
	reading
	writing
	flushing
	discarding
	zeroing
)

func (k kind) String() string {
	return [...]string{"idle", "read", "write", "flush", "discard", "zero"}[k]
}

// op is one operation, from Send, Supply, Flush, Discard or Zero until its frames or its result
// have been returned. Its number and generation are the user data of its submissions. So the Queue
// detects a completion of an earlier use.
type op struct {
	kind     kind
	inFlight bool  // the kernel has it
	repeated bool  // it was submitted again with its pages pinned
	durable  bool  // a write that must be on stable storage when it completes
	way      uint8 // how a discard was requested
	tries    uint8 // how often it was submitted again
	errno    unix.Errno
	status   Status // answer of a node's disk
	gen      uint32
	target   uint32
	count    int32  // frames
	given    int32  // frames returned
	block    uint64 // where it starts on the target, in bytes
	total    uint64 // bytes
	done     uint64 // bytes transferred
	asked    uint64 // bytes of the command that the kernel has, on a node
	token    uint64 // of a flush, discard or zeroing
}

// cancelData is the user data of cancel requests, which belong to no operation.
const cancelData = 1<<64 - 1

func (q *Queue) userData(i uint32) uint64 { return uint64(q.ops[i].gen)<<32 | uint64(i) }

// chain is the frames of operation i.
func (q *Queue) chain(i uint32) []umem.Frame {
	return q.frames[int(i)*q.pieces:][:q.ops[i].count]
}

// take returns a free operation. There must be one.
func (q *Queue) take(k kind) uint32 {
	last := len(q.free) - 1
	i := q.free[last]
	q.free = q.free[:last]
	q.ops[i] = op{kind: k, gen: q.ops[i].gen}
	return i
}

// drop frees an operation whose frames have been returned.
func (q *Queue) drop(i uint32) {
	q.ops[i].kind = idle
	q.ops[i].gen = (q.ops[i].gen + 1) & 0x7fffffff // never cancelData
	q.free = append(q.free, i)
}

// finish queues an operation whose frames or result can be returned.
func (q *Queue) finish(i uint32, errno unix.Errno) {
	o := &q.ops[i]
	o.errno = errno
	if errno != 0 {
		q.stats.failed(errno)
	}
	switch c := &q.stats.Own; o.kind {
	case reading:
		c.Reads++
		q.read.push(i)
	case writing:
		c.Writes++
		q.written.push(i)
	case flushing:
		c.Flushes++
		q.flushed.push(i)
	case discarding:
		c.Discards++
		q.flushed.push(i)
	default:
		c.Zeroings++
		q.flushed.push(i)
	}
}
