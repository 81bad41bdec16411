package target

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/umem"
)

// io begins a command of an I/O queue.
func (s *Server) io(o *operation) {
	c, h := &o.command, o.seat.host
	if !h.Ready() {
		s.answer(o, fabrics.CommandSequence|fabrics.DoNotRetry)
		return
	}
	if o.disk = s.disk(h.Subsystem, c.Namespace); o.disk == nil {
		s.answer(o, fabrics.InvalidNamespace|fabrics.DoNotRetry)
		return
	}
	o.disk.users++
	switch c.Opcode {
	case fabrics.OpRead, fabrics.OpWrite, fabrics.OpCompare, fabrics.OpWriteZeroes:
		s.ioRange(o)
	case fabrics.OpFlush:
		s.rangeLater(o)
	case fabrics.OpDataset:
		s.dataset(o)
	default:
		s.answer(o, fabrics.InvalidOpcode|fabrics.DoNotRetry)
	}
}

// ioRange begins a command about one run of blocks.
func (s *Server) ioRange(o *operation) {
	c := &o.command
	var status fabrics.Status
	if o.at, status = o.disk.Check(c, o.seat.host.Subsystem.Transfer); status != fabrics.Success {
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

// toDisk is the frame of a buffer, for the disk's queue.
func (s *Server) toDisk(o *operation, i int) umem.Frame {
	o.state = opDisk
	f := o.buffers[i].frame
	*s.region.Side(f) = umem.Side{Target: o.disk.target, Block: o.at.Offset, Token: token(o.number, i)}
	return f
}

// transferred goes on with an operation for which the disk has read or written.
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

// diskStatus is what a host is told of a disk's error.
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
	case !discard || !o.disk.Discard: // hints, which nobody here makes use of
		s.answer(o, fabrics.Success)
	default:
		o.ranges = ranges
		s.rdmaRead(o, o.command.Data.Length)
	}
}

// nextRange goes on with the next range of a Dataset Management command that is not empty.
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

// rangeLater has the disk's queue take a flush, discard or zeroing, now or when the disk may have another one there.
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

// retry has the disk's queue take what it had no room for.
func (s *Server) retry() {
	n := len(s.later)
	for i := range n {
		if o := &s.operations[s.later[i]]; o.seat.state == seatOpen {
			s.rangeLater(o)
		} else {
			s.answer(o, fabrics.AbortedByRequest)
		}
	}
	s.later = s.later[:copy(s.later, s.later[n:])]
}

// ranged goes on with an operation whose flush, discard or zeroing is done.
func (s *Server) ranged(op int32, err error) {
	o := &s.operations[op]
	o.disk.ranges--
	s.ranges--
	switch {
	case err != nil:
		s.answer(o, diskStatus(o.command.Opcode, err))
	case o.command.Opcode == fabrics.OpDataset && o.seat.state == seatOpen:
		s.nextRange(o)
	default:
		s.answer(o, fabrics.Success)
	}
}
