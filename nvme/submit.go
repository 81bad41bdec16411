package nvme

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// errLongChain is what Kick reports when a chain could not be taken.
var errLongChain = errors.New("a chain has more frames than an operation of this queue takes: see Limits, or open the queue with more Pieces")

// Send takes full frames to be written. The bytes of a chain go to the disk one
// after another from the Block of its first frame. A request that breaks the
// target's alignment, or names no target, comes back from Reap with an error and
// is not shown to the kernel.
func (q *Queue) Send(full []umem.Frame) int { return q.accept(full, writing, false) }

// SendDurable is Send for writes that are on stable storage when Reap gives their
// frames back without an error: no Flush is needed for them. The kernel asks the device for
// it (FUA), or flushes after each where it has no such thing; see
// Target.Limits.
func (q *Queue) SendDurable(full []umem.Frame) int { return q.accept(full, writing, true) }

// Supply takes empty frames to be read into, Len bytes each. A chain is filled
// from contiguous bytes of the disk.
func (q *Queue) Supply(empty []umem.Frame) int { return q.accept(empty, reading, false) }

// accept starts an operation for each whole chain while there is room.
func (q *Queue) accept(fs []umem.Frame, k kind, durable bool) int {
	taken := 0
	for taken < len(fs) && q.moves < q.depth && !q.closed {
		n := q.message(fs[taken:])
		if n == 0 || n > q.most-q.held {
			break
		}
		q.start(k, durable, fs[taken:taken+n])
		taken += n
	}
	if taken > 0 {
		q.worker.PassTo(q.holder, fs[:taken])
	}
	return taken
}

// message is the number of frames of the first chain, zero when its end is
// missing or it has too many.
func (q *Queue) message(fs []umem.Frame) int {
	for i := range fs {
		if i == q.pieces {
			q.fault = errLongChain
			return 0
		}
		if !fs[i].Continues() {
			return i + 1
		}
	}
	return 0
}

// start makes fs an operation.
func (q *Queue) start(k kind, durable bool, fs []umem.Frame) {
	side := q.region.Side(fs[0])
	i := q.take(k)
	o := &q.ops[i]
	o.count, o.durable = int32(len(fs)), durable
	o.target, o.block = side.Target, side.Block
	for j, f := range fs {
		f.Options &= umem.KernelOptions // what went wrong last time
		q.frames[int(i)*q.pieces+j] = f
	}
	q.held += len(fs)
	q.moves++
	if errno := q.check(o, fs); errno != 0 {
		q.finish(i, errno)
		if q.event.fd >= 0 {
			q.raise()
		}
		return
	}
	q.issue(i)
}

// check holds an operation against its target and the region, and sums up its
// bytes.
func (q *Queue) check(o *op, fs []umem.Frame) unix.Errno {
	if uint64(o.target) >= uint64(len(q.targets)) || q.targets[o.target].target == nil {
		return unix.EBADF
	}
	p := &q.targets[o.target]
	if o.kind == writing && p.target.readOnly {
		return unix.EROFS
	}
	bad := o.block & p.offsetMask
	for _, f := range fs {
		start, room := q.region.Start(f)
		if f.Addr-start > room || uint64(f.Len) > room-(f.Addr-start) {
			return unix.EFAULT
		}
		bad |= f.Addr&p.memoryMask | uint64(f.Len)&p.offsetMask
		o.total += uint64(f.Len)
	}
	switch {
	case bad != 0 || o.total == 0 || o.block > 1<<62:
		return unix.EINVAL
	case o.total > maxMessage:
		return unix.EMSGSIZE
	}
	return o.beyond(p.target)
}

// issue queues a submission for what is left of an operation.
func (q *Queue) issue(i uint32) {
	o := &q.ops[i]
	if !o.flying {
		o.flying = true
		q.flying++
		q.targets[o.target].flying++
	}
	switch {
	case q.targets[o.target].target.node != nil:
		q.command(i)
	case o.kind == reading || o.kind == writing:
		q.ring.push(q.moveEntry(i))
	case o.kind == flushing:
		q.ring.push(sqe{opcode: opFsync, flags: sqeFixedFile, fd: int32(o.target), opFlags: fsyncDatasync, userData: q.userData(i)})
	default:
		q.ring.push(q.spanEntry(i))
	}
}

// moveEntry is the submission for a read or write of a file or block device.
func (q *Queue) moveEntry(i uint32) sqe {
	o := &q.ops[i]
	s := sqe{opcode: opReadFixed, flags: sqeFixedFile, fd: int32(o.target), off: o.block + o.done, userData: q.userData(i)}
	if o.kind == writing {
		s.opcode = opWriteFixed
	}
	if o.durable {
		s.opFlags = rwfDsync
	}
	if o.count == 1 {
		f := q.frames[int(i)*q.pieces]
		s.addr, s.len, s.bufIndex = q.base+f.Addr+o.done, f.Len-uint32(o.done), bufferOf(f.Addr)
	} else {
		q.gather(i, &s)
	}
	return s
}
