package nvme

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/counter"
)

// counters are a queue's own, written by its thread only.
type counters struct {
	reads, writes           uint64
	controls                [3]uint64 // flushes, discards, zeroings
	bytesRead, bytesWritten uint64
	copied                  uint64
	short, pinned, enters   uint64
	again                   uint64
}

func (c *counters) add(o *op, n uint64, direct bool) {
	if o.kind == reading {
		c.bytesRead += n
	} else {
		c.bytesWritten += n
	}
	if !direct {
		c.copied += n
	}
}

// stats are the counters others may read. Only the queue's thread writes them,
// once per batch.
type stats struct {
	reads, writes           counter.Counter
	controls                [3]counter.Counter
	bytesRead, bytesWritten counter.Counter
	copied                  counter.Counter
	short, pinned, enters   counter.Counter
	again                   counter.Counter
	inFlight                counter.Counter
	errnos                  [maxErrno + 1]atomic.Uint64
	statuses                [statusBits + 1]atomic.Uint64
}

// maxErrno is the highest errno that is counted apart; the kernel's internal
// ones beyond it share its place. EHWPOISON in include/uapi/asm-generic/errno.h.
const maxErrno = 133

func (s *stats) failed(errno unix.Errno) { s.errnos[min(errno, maxErrno)].Add(1) }

func (s *stats) answered(status Status) { s.statuses[status&statusBits].Add(1) }

// publish shows the counters that changed.
func (s *stats) publish(q *Queue) {
	c := &q.count
	s.reads.Set(c.reads)
	s.writes.Set(c.writes)
	for i := range c.controls {
		s.controls[i].Set(c.controls[i])
	}
	s.bytesRead.Set(c.bytesRead)
	s.bytesWritten.Set(c.bytesWritten)
	s.copied.Set(c.copied)
	s.short.Set(c.short)
	s.pinned.Set(c.pinned)
	s.enters.Set(c.enters)
	s.again.Set(c.again)
	s.inFlight.Set(uint64(q.flying))
}

// Stats are a queue's counters since Open. Operations count when they complete,
// also when they fail.
type Stats struct {
	Reads, Writes, Flushes  uint64                // operations
	Discards, Zeroings      uint64                // operations
	BytesRead, BytesWritten uint64                // bytes transferred
	Copied                  uint64                // of these, copied by the kernel: targets without direct I/O
	Short                   uint64                // transfers continued: the kernel cut them short, or a command of a node takes no more
	Pinned                  uint64                // chains whose pages the kernel had to pin
	Again                   uint64                // operations submitted again that the kernel had given up before they began
	Enters                  uint64                // io_uring_enter system calls
	InFlight                uint64                // operations the kernel has now
	Errors                  map[unix.Errno]uint64 // failed operations by reason
	Statuses                map[Status]uint64     // failed commands by what the disk of a node answered
}

// Stats reads the counters. It may be called from any goroutine.
func (q *Queue) Stats() Stats {
	s := &q.stats
	out := Stats{
		Reads: s.reads.Load(), Writes: s.writes.Load(), Flushes: s.controls[0].Load(), Discards: s.controls[1].Load(), Zeroings: s.controls[2].Load(),
		BytesRead: s.bytesRead.Load(), BytesWritten: s.bytesWritten.Load(), Copied: s.copied.Load(),
		Short: s.short.Load(), Pinned: s.pinned.Load(), Again: s.again.Load(), Enters: s.enters.Load(), InFlight: s.inFlight.Load(),
		Errors: make(map[unix.Errno]uint64), Statuses: make(map[Status]uint64),
	}
	for i := range s.errnos {
		if n := s.errnos[i].Load(); n > 0 {
			out.Errors[unix.Errno(i)] = n
		}
	}
	for i := range s.statuses {
		if n := s.statuses[i].Load(); n > 0 {
			out.Statuses[Status(i)] = n
		}
	}
	return out
}
