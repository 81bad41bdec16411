package nvmet

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/umem"
)

// operation is a command, from its beginning until its completion has arrived at the host.
type operation struct {
	session *session
	number  int32 // its own
	state   opState
	command fabrics.Command
	disk    *disk
	at      fabrics.Range
	slot    int32 // slot of the capsule whose data is in use; or none
	needs   [2]uint32
	buffers [2]buffer // data of the host, and of the disk if both are needed
	next    int       // range of a Dataset Management command
	ranges  int
	result  uint64
	status  fabrics.Status
	hangup  bool  // the queue ends once the host has the completion
	awaited bool  // it waits for a completion of the RDMA device
	since   int64 // time of arrival
	behind  int32 // the next one in its waitQueue
	charged bool  // its buffers count for the disk
	fenced  bool  // a reservation forbids it, which was made after it had arrived
}

type opState uint8

const (
	opIdle      opState = iota
	opBlocked           // waits for a buffer
	opFetching          // waits for the RDMA READ of its data
	opInLine            // waits for a place in the disks' queue, because its disk uses its whole share
	opDisk              // the disk's queue has it
	opLater             // waits because the disk's queue is full
	opParked            // an asynchronous event request that waits for an event
	opProving           // an Authentication Send that another thread processes
	opReserving         // a change or report of reservations that has not ended
	opAnswered          // its completion was posted
)

// buffer is memory for the data of an operation.
type buffer struct {
	frame umem.Frame
	// kind says from which pool a buffer comes.
	kind kind
	// where says who holds a buffer.
	where where
}

// kind says from which pool a buffer comes.
type kind uint8

const (
	small kind = iota // in the order of Server.pools
	large
	capsule
)

// where says who holds a buffer.
type where uint8

const (
	nowhere  where = iota // there is no buffer
	atWorker              // the worker
	atDevice              // the RDMA device
	atDisk                // the disk's queue
)

// pass passes a buffer between the worker and the RDMA device.
func (s *Server) pass(b *buffer, to where) {
	one := [1]umem.Frame{b.frame}
	switch {
	case b.where == to:
	case to == atDevice:
		s.config.Worker.PassTo(s.moving, one[:])
	default:
		s.moving.PassTo(s.config.Worker, one[:])
	}
	b.where = to
}

// need requests buffers, the first for data of the host, and continues with the operation when it
// has them.
func (s *Server) need(o *operation, first, second uint32) {
	o.needs = [2]uint32{first, second}
	switch {
	case s.overShare(o):
		s.waitForBuffer(o)
		s.push(&o.disk.waiting, o)
	case o.session.blocked.Len() == 0 && s.acquire(o):
		s.acquired(o)
	default:
		s.waitForBuffer(o)
		o.session.blocked.Push(o.number)
		s.waiting++
	}
}

// waitForBuffer makes an operation wait for buffers.
func (s *Server) waitForBuffer(o *operation) {
	if o.state != opBlocked {
		o.state = opBlocked
		s.count.waited.Add(1)
	}
}

// kindFor returns the kind of a buffer for n bytes.
func (s *Server) kindFor(n uint32) kind {
	if uint64(n) > s.pools[small].size {
		return large
	}
	return small
}

// acquire gives an operation all buffers that it needs, or none.
func (s *Server) acquire(o *operation) bool {
	for i, n := range o.needs {
		if n == 0 {
			continue
		}
		k := s.kindFor(n)
		f, ok := s.pools[k].take(o.session.number)
		if !ok {
			s.putBack(o)
			return false
		}
		f.Len, f.Options = n, 0
		o.buffers[i] = buffer{frame: f, kind: k, where: atWorker}
	}
	s.charge(o)
	return true
}

// putBack returns the buffers that an operation has already got.
func (s *Server) putBack(o *operation) {
	for i, n := range o.needs {
		if b := &o.buffers[i]; n > 0 && b.where != nowhere {
			s.give(o, b)
			b.where = nowhere
		}
	}
}

// give returns a buffer to its pool, unless it belongs to a capsule.
func (s *Server) give(o *operation, b *buffer) {
	p := &s.pools[b.kind]
	p.give(o.session.number, b.frame)
	s.emptied = s.emptied || p.held[o.session.number] == 0
}

// begin continues with operations that wait for buffers, one of each session by turns, and returns
// their number. If the disk uses its whole share, the operation moves to the disk's queue, so that
// other operations of its session can pass it.
func (s *Server) begin() (n int) {
	n = s.feed()
	for tried := 0; s.waiting > 0 && tried < len(s.sessions); tried++ {
		p := &s.sessions[s.turn]
		if s.turn++; s.turn == len(s.sessions) {
			s.turn = 0
		}
		if p.state != sessionOpen || p.blocked.Len() == 0 {
			continue
		}
		o := &s.operations[*p.blocked.At(0)]
		over := s.overShare(o)
		if !over && !s.acquire(o) {
			continue
		}
		p.blocked.Skip(1)
		s.waiting--
		if tried = 0; over {
			s.push(&o.disk.waiting, o)
			continue
		}
		s.acquired(o)
		n++
	}
	return n
}

// release returns all buffers of an operation, and posts the receive of its capsule's slot again.
// No device may hold any of the buffers.
func (s *Server) release(o *operation) {
	for i := range o.buffers {
		b := &o.buffers[i]
		switch {
		case b.where == nowhere:
			continue
		case b.kind == capsule:
			s.pass(b, atDevice)
		default:
			s.pass(b, atWorker)
			s.give(o, b)
		}
		b.where = nowhere
	}
	if o.slot != none {
		if p := o.session; p.state == sessionOpen {
			s.receive(p, o.slot)
			s.queueForPosting(p)
		}
		o.slot = none
	}
}

// await records that an operation waits for the RDMA device; awaited ends that.
func (s *Server) await(o *operation) {
	o.awaited = true
	s.awaiting++
}

func (s *Server) awaited(o *operation) {
	if o.awaited {
		o.awaited = false
		s.awaiting--
	}
}

// finish ends an operation: its completion has arrived, or never will.
func (s *Server) finish(o *operation) {
	p := o.session
	s.release(o)
	s.awaited(o)
	s.discharge(o)
	s.unfence(o)
	if d := o.disk; d != nil {
		d.users--
		o.disk = nil
		s.releaseDisk(d)
	}
	o.state = opIdle
	p.idle = append(p.idle, o.number)
	s.drained(p)
}

// io begins a command of an I/O queue.
func (s *Server) io(o *operation) {
	c, h := &o.command, o.session.host
	if !h.Ready() {
		s.answer(o, fabrics.CommandSequence|fabrics.DoNotRetry)
		return
	}
	if o.disk = s.disk(h.Subsystem, c.Namespace); o.disk == nil {
		s.answer(o, h.Missing(c.Namespace))
		return
	}
	o.disk.users++
	if !o.disk.Accessible() {
		s.answer(o, fabrics.AsymmetricAccessInaccessible)
		return
	}
	if r := o.disk.Reservations; r != nil && r.Conflicts(o.session.who, c.Opcode) {
		s.answer(o, fabrics.ReservationConflict|fabrics.DoNotRetry)
		return
	}
	switch c.Opcode {
	case fabrics.OpRead, fabrics.OpWrite, fabrics.OpCompare, fabrics.OpWriteZeroes:
		s.ioRange(o)
	case fabrics.OpReservationRegister, fabrics.OpReservationReport, fabrics.OpReservationAcquire, fabrics.OpReservationRelease:
		s.reservation(o)
	case fabrics.OpFlush:
		s.rangeLater(o)
	case fabrics.OpDataset:
		s.dataset(o)
	default:
		s.answer(o, fabrics.InvalidOpcode|fabrics.DoNotRetry)
	}
}

// ioRange begins a command for one range of blocks.
func (s *Server) ioRange(o *operation) {
	c := &o.command
	var status fabrics.Status
	if o.at, status = o.disk.Check(c, o.session.host.Subsystem.Transfer); status != fabrics.Success {
		s.answer(o, status)
		return
	}
	n := uint32(o.at.Length)
	switch {
	case c.Opcode == fabrics.OpWriteZeroes:
		s.rangeLater(o)
	case c.Opcode == fabrics.OpRead && c.Data.Place == fabrics.InCapsule:
		s.answer(o, fabrics.InvalidSGLType|fabrics.DoNotRetry)
	case c.Opcode == fabrics.OpRead:
		s.need(o, 0, n)
	case c.Data.Place == fabrics.InCapsule:
		s.rdmaReadDone(o)
	case c.Opcode == fabrics.OpCompare:
		s.need(o, n, n)
	default:
		s.need(o, n, 0)
	}
}

// toDisk returns the frame of a buffer for the disks' queue.
func (s *Server) toDisk(o *operation, i int) umem.Frame {
	o.state = opDisk
	f := o.buffers[i].frame
	*s.region.Side(f) = umem.Side{Target: o.disk.target, Block: o.at.Offset, Token: token(o.number, i)}
	return f
}

// transferred continues with an operation whose read or write of the disk is done.
func (s *Server) transferred(op int32, err error) {
	o := &s.operations[op]
	switch {
	case err != nil:
		s.answer(o, diskStatus(o.command.Opcode, err))
	case o.command.Opcode == fabrics.OpCompare && !bytes.Equal(s.region.Bytes(o.buffers[0].frame), s.region.Bytes(o.buffers[1].frame)):
		s.answer(o, fabrics.CompareFailure|fabrics.DoNotRetry)
	default:
		s.answer(o, fabrics.Success)
	}
}

// diskStatus translates a disk's error into a status for the host.
func diskStatus(opcode uint8, err error) fabrics.Status {
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fabrics.CapacityExceeded | fabrics.DoNotRetry
	case errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM):
		return fabrics.WriteProtected | fabrics.DoNotRetry
	case opcode == fabrics.OpRead || opcode == fabrics.OpCompare:
		return fabrics.UnrecoveredRead
	case opcode == fabrics.OpWrite:
		return fabrics.WriteFault
	}
	return fabrics.InternalError
}

// dataset begins a Dataset Management command.
func (s *Server) dataset(o *operation) {
	ranges, discard, status := o.disk.Dataset(&o.command)
	switch {
	case status != fabrics.Success:
		s.answer(o, status)
	case !discard || !o.disk.Discard: // only hints, which are ignored
		s.answer(o, fabrics.Success)
	default:
		o.ranges = ranges
		s.rdmaRead(o, o.command.Data.Length)
	}
}

// nextRange continues with the next non-empty range of a Dataset Management command.
func (s *Server) nextRange(o *operation) {
	data := s.region.Bytes(o.buffers[0].frame)
	for ; o.next < o.ranges; o.next++ {
		at, status := o.disk.DatasetRange(data[o.next*fabrics.DatasetRangeLen:])
		if status != fabrics.Success {
			s.answer(o, status)
			return
		}
		if at.Length > 0 {
			o.at = at
			o.next++
			s.rangeLater(o)
			return
		}
	}
	s.answer(o, fabrics.Success)
}

// rangeLater passes a flush, discard or zeroing to the disks' queue, now or when the disk may use
// another place in it.
func (s *Server) rangeLater(o *operation) {
	d := o.disk
	if !within(d.ranges, nvme.MaxFlushes-s.ranges) {
		o.state = opLater
		s.later = append(s.later, o.number)
		return
	}
	var err error
	switch at := &o.at; o.command.Opcode {
	case fabrics.OpFlush:
		err = s.queue.Flush(d.target, uint64(o.number))
	case fabrics.OpDataset:
		err = s.queue.Discard(d.target, at.Offset, at.Length, uint64(o.number))
	default:
		err = s.queue.Zero(d.target, at.Offset, at.Length, uint64(o.number))
	}
	if err != nil {
		s.answer(o, diskStatus(o.command.Opcode, err))
		return
	}
	o.state = opDisk
	d.ranges++
	s.ranges++
}

// retry passes the ranges to the disks' queue for which it had no room before.
func (s *Server) retry() {
	n := len(s.later)
	for i := range n {
		if o := &s.operations[s.later[i]]; o.session.state == sessionOpen {
			s.rangeLater(o)
		} else {
			s.answer(o, fabrics.AbortedByRequest)
		}
	}
	s.later = s.later[:copy(s.later, s.later[n:])]
}

// ranged continues with an operation whose flush, discard or zeroing is done.
func (s *Server) ranged(op int32, err error) {
	o := &s.operations[op]
	o.disk.ranges--
	s.ranges--
	discard := o.command.Opcode == fabrics.OpDataset
	switch {
	case err != nil && !(discard && errors.Is(err, unix.EOPNOTSUPP)): // a device below may not discard, though the disk says it does: to discard is a hint
		s.answer(o, diskStatus(o.command.Opcode, err))
	case discard && o.session.state == sessionOpen:
		s.nextRange(o)
	default:
		s.answer(o, fabrics.Success)
	}
}
