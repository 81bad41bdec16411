package nvme

import "errors"

// ErrBusy says that the queue has as many flushes in it as it takes, sixteen.
var ErrBusy = errors.New("too many flushes in the block queue: take what Flushed gives and try again")

// ErrClosed is returned by a queue or target that has been closed.
var ErrClosed = errors.New("closed already")

// ErrNoTarget says that a flush names no target of the queue.
var ErrNoTarget = errors.New("the block queue has no such target")

// FlushResult is what became of a Flush.
type FlushResult struct {
	Token uint64 // as given to Flush
	Err   error  // nil: what it covers is on stable storage
}

// Flush queues an fdatasync of a target. When it has completed without error,
// every write to the target whose completion was seen (by Reap) before Flush was
// called is on stable storage, with the metadata needed to read it. Writes still in
// flight at that time may or may not be. It starts with the next Kick, at the side
// of reads and writes, in a thread of the kernel (io-wq).
func (q *Queue) Flush(target uint32, token uint64) error {
	switch {
	case q.closed:
		return ErrClosed
	case uint64(target) >= uint64(len(q.targets)) || q.targets[target].target == nil:
		return ErrNoTarget
	case q.flushes == maxFlushes:
		return ErrBusy
	}
	q.flushes++
	i := q.take(flushing)
	o := &q.ops[i]
	o.target, o.token, o.flying = target, token, true
	q.flying++
	q.targets[target].flying++
	q.ring.push(sqe{opcode: opFsync, flags: sqeFixedFile, fd: int32(target), opFlags: fsyncDatasync, userData: q.userData(i)})
	return nil
}

// Flushed gives the results of flushes that completed, and returns how many.
func (q *Queue) Flushed(dst []FlushResult) int {
	q.harvest()
	n := 0
	for n < len(dst) && !q.flushed.empty() {
		i := q.flushed.first()
		dst[n] = FlushResult{Token: q.ops[i].token}
		if errno := q.ops[i].errno; errno != 0 {
			dst[n].Err = errno
		}
		q.flushed.drop()
		q.drop(i)
		q.flushes--
		n++
	}
	q.quiet()
	return n
}
