package nvme

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// errLongChain is the error of Kick after a chain that was too long.
var errLongChain = errors.New("a chain has more frames than an operation of this queue takes: see Limits, or open the queue with more Pieces")

// Send takes full frames to write. The bytes of a chain go to the disk one after another from the
// Block of its first frame. If a request breaks the target's alignment, or names no target, Reap
// returns it with an error, and the kernel does not see it.
func (q *Queue) Send(full []umem.Frame) int { return q.accept(full, writing, false) }

// SendDurable is Send for writes that must be durable. When Reap returns their frames without an
// error, they are on stable storage, and need no Flush. The kernel writes with FUA. If the device
// does not support that, the kernel flushes after each write; see Target.Limits.
func (q *Queue) SendDurable(full []umem.Frame) int { return q.accept(full, writing, true) }

// Supply takes empty frames to read into, Len bytes each. A chain is filled from contiguous bytes
// of the disk.
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
		q.pass(q.worker, q.holder, fs[:taken])
	}
	return taken
}

// message returns the number of frames of the first chain. It is zero if the chain's end is missing
// or it has too many frames.
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
	side := q.Side(fs[0])
	i := q.take(k)
	o := &q.ops[i]
	o.count, o.durable = int32(len(fs)), durable
	o.target, o.block = side.Target, side.Block
	for j, f := range fs {
		f.Options &= umem.KernelOptions // clears the error of the last use
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

// check checks an operation against its target and the region, and sums up its bytes.
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
		if q.outside.has(f) {
			if errno := q.checkOutside(o, f); errno != 0 {
				return errno
			}
			bad |= f.Addr&p.memoryMask | uint64(f.Len)&p.offsetMask
			o.total += uint64(f.Len)
			continue
		}
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

// issue queues a submission for the rest of an operation.
func (q *Queue) issue(i uint32) {
	o := &q.ops[i]
	if !o.inFlight {
		o.inFlight = true
		q.inFlight++
		q.targets[o.target].inFlight++
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

// moveEntry returns the submission for a read or write of a file or block device.
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
		if q.outside.has(f) {
			s.addr, s.bufIndex = q.outside.place(f)
			s.addr, s.len = s.addr+o.done, f.Len-uint32(o.done)
			if q.outside.unregistered {
				q.pinNow(o.kind, &s)
			}
			return s
		}
		s.addr, s.len, s.bufIndex = q.base+f.Addr+o.done, f.Len-uint32(o.done), q.buffers.of(f.Addr)
		if q.unregistered {
			q.pinNow(o.kind, &s)
		}
	} else {
		q.gather(i, &s)
	}
	return s
}

// pinNow makes a submission one of memory that is not registered.
func (q *Queue) pinNow(k kind, s *sqe) {
	s.opcode, s.bufIndex = opRead, 0
	if k == writing {
		s.opcode = opWrite
	}
	q.stats.Own.Pinned++
}

// Kick submits queued operations to the kernel in one system call. It makes none if nothing is queued and
// no completion waits inside the kernel. The first call binds the queue to the calling thread.
//
// The same call also collects completions. On fast devices most of a batch is complete when it has
// been submitted, and needs no second call.
func (q *Queue) Kick() error {
	if q.closed {
		return ErrClosed
	}
	if q.mustEnter() {
		q.enter(0)
		q.stats.publish(q)
	}
	return q.takeFault()
}

// mustEnter reports whether a system call is necessary to submit the queued operations.
func (q *Queue) mustEnter() bool {
	return q.ring.needsGetEvents() || q.ring.queued() > 0
}

// Wait is Kick that sleeps, in the same system call, until there is a completion for Recv, Reap or
// Flushed, or until limit has passed. Without a limit (limit < 0) it costs a little less. It
// returns early if nothing is in flight or a signal arrives. It is not a verb of the port: it is
// for a worker that has nothing else to wait for. The sleeping thread counts as a running one for
// GOMAXPROCS, which should exceed the number of such workers.
func (q *Queue) Wait(limit time.Duration) error { return q.WaitFor(1, limit) }

// WaitFor is Wait for n completions, or for all operations in flight if these are fewer. At depth
// the wake-up for each completion is the largest cost. With 64 operations in flight, waiting for 16
// at a time saved a quarter of the CPU time on a device served by the kernel's threads. It delays
// the first of them until the last is there. So it is for work that is measured by throughput. If
// one operation may be slow, a limit keeps it from delaying the others.
func (q *Queue) WaitFor(n int, limit time.Duration) error {
	if q.closed {
		return ErrClosed
	}
	if !q.idle() {
		return q.Kick()
	}
	least := uint32(min(max(n, 1), q.inFlight))
	if limit < 0 {
		q.enter(least)
	} else {
		q.enterLimit(least, limit)
	}
	q.stats.publish(q)
	return q.takeFault()
}

// idle reports whether operations are in flight and nothing can be returned yet.
func (q *Queue) idle() bool {
	return q.inFlight > 0 && q.read.empty() && q.written.empty() && q.flushed.empty() && q.ring.ready() == 0
}

// enter submits and collects completions, waiting for least of them.
func (q *Queue) enter(least uint32) { q.enterWith(least, enterGetEvents, 0, 0) }

// enterLimit submits and waits for least completions no longer than limit.
func (q *Queue) enterLimit(least uint32, limit time.Duration) {
	s := q.scratch
	s.limit.sec, s.limit.nsec = int64(limit/time.Second), int64(limit%time.Second)
	q.enterWith(least, enterGetEvents|enterExtArg, uintptr(address(s.wait)), uintptr(len(s.wait)))
}

func (q *Queue) enterWith(least uint32, flags, arg, size uintptr) {
	if !q.enabled && !q.bind() {
		return
	}
	q.stats.Own.Enters++
	if err := q.ring.enter(least, flags, arg, size); err != nil {
		q.fault = fmt.Errorf("submit to block queue %s: %w", q.name, explainThread(err))
	}
}

// bind makes the calling thread the ring's submitter.
func (q *Queue) bind() bool {
	if err := q.ring.enable(); err != nil {
		q.fault = fmt.Errorf("start block queue %s: %w", q.name, err)
		return false
	}
	q.enabled = true
	return true
}

// ErrWrongThread says that a queue was used on a thread other than the one its
// first Kick bound it to.
var ErrWrongThread = errors.New("the queue belongs to another thread: lock the worker's goroutine to its thread (runtime.LockOSThread)")

// explainThread explains the kernel's error for a thread that is not the ring's submitter.
func explainThread(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return ErrWrongThread
	}
	return err
}

// takeFault returns the first error since the last call.
func (q *Queue) takeFault() error {
	err := q.fault
	q.fault = nil
	return err
}
