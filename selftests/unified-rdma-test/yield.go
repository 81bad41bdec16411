package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// brief is how long awaitMany looks at a queue at a time.
const brief = time.Microsecond

// awaitMany is await for who receives in a test of bandwidth: whenever nothing has come it lets others have the processor,
// of whom the kernel's threads that do the work of a device in software may be some. Who sends, or waits for an answer to a single
// message, does better to keep it: what the others leave of it comes late. A device that works as the program looks at it gets all
// of it.
func (l *link) awaitMany(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	if l.progress != nil {
		return l.await(q)
	}
	for tries := 1; ; tries++ {
		n, err := q.Spin(l.polled, brief)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			return l.answered(n)
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // sched_yield(2): always succeeds
		if err := l.idle(tries); err != nil {
			return nil, err
		}
	}
}
