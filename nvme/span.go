package nvme

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrBadRange says that a range to discard or to zero is empty, not in whole blocks
// (Alignment), or leaves the target.
var ErrBadRange = errors.New("the range is empty, not in whole blocks of the target, or leaves it")

// Discard queues giving n bytes of a target from an offset back to the device, or to
// the file system of a file: what they read as afterwards is anything on a device and
// zeros in a file. Like a flush it starts with the next Kick and its result comes from
// Flushed.
func (q *Queue) Discard(target uint32, at, n, token uint64) error {
	return q.span(discarding, target, at, n, token)
}

// Zero queues making n bytes of a target from an offset read as zeros, without moving
// them from memory where the device can. In a file the blocks become
// unwritten ones, whose next write changes metadata. Like a flush it starts with the
// next Kick and its result comes from Flushed.
func (q *Queue) Zero(target uint32, at, n, token uint64) error {
	return q.span(zeroing, target, at, n, token)
}

func (q *Queue) span(k kind, target uint32, at, n, token uint64) error {
	if err := q.admit(target, k); err != nil {
		return err
	}
	t := q.targets[target].target
	switch {
	case t.readOnly:
		return fmt.Errorf("%v %s: %w", k, t.path, unix.EROFS)
	case (at|n)&(uint64(t.align.Offset)-1) != 0 || n == 0 || at > 1<<62 || n > 1<<62 || t.fixedSize() && at+n > t.size:
		return ErrBadRange
	case t.fixedSize() && k == discarding && t.limits.Discard == 0:
		return &NotSupportedError{"discarding on " + t.path, "write over it, or zero it"}
	case t.node != nil && k == zeroing && t.limits.Zeroes == 0:
		return &NotSupportedError{"zeroing on " + t.path, "write zeros"}
	}
	i := q.begin(k, target, token)
	q.ops[i].block, q.ops[i].total = at, n
	q.issue(i)
	return nil
}

// fixedSize reports whether the target cannot grow.
func (t *Target) fixedSize() bool { return t.block || t.node != nil }

// Ways to discard on a block device, in the order they are tried.
const (
	discardCommand   = iota // an io_uring command, Linux 6.12
	discardWaiting          // the same from a thread of the kernel's, for devices that cannot refuse to wait
	discardFallocate        // fallocate's way to say so
	discardWays
)

// spanEntry is the submission for a range of a file or block device.
func (q *Queue) spanEntry(i uint32) sqe {
	o := &q.ops[i]
	p := &q.targets[o.target]
	o.way = p.discards
	s := sqe{opcode: opFallocate, flags: sqeFixedFile, fd: int32(o.target), off: o.block, addr: o.total, userData: q.userData(i)}
	switch {
	case o.kind == zeroing:
		s.len = unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE
	case !p.target.block:
		s.len = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	case o.way < discardFallocate:
		s.opcode, s.off, s.addr, s.addr3 = opURingCmd, blockDiscard, o.block, o.total
	default:
		s.len = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_NO_HIDE_STALE
	}
	if o.way == discardWaiting {
		s.flags |= sqeAsync
	}
	return s
}

// tryOther reports whether a discard that the kernel does not know is to be tried in
// another way.
func (q *Queue) tryOther(o *op, errno unix.Errno) bool {
	p := &q.targets[o.target]
	if o.kind != discarding || !p.target.block || errno != unix.EOPNOTSUPP || o.way+1 >= discardWays {
		return false
	}
	p.discards = max(p.discards, o.way+1)
	return true
}
