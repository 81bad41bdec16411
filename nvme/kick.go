package nvme

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Kick hands queued operations to the kernel in one system call, and makes none
// when nothing is queued and no completion waits inside the kernel. The first
// call binds the queue to the calling thread.
//
// Submitting also collects what completed meanwhile: on fast devices most of a
// batch is done by the time it is submitted, and needs no second call.
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

// mustEnter reports whether handing over what is queued takes a system call.
func (q *Queue) mustEnter() bool {
	switch {
	case q.ring.wants() || !q.enabled && q.ring.queued() > 0:
		return true
	case q.ring.helped():
		return q.ring.publish() && q.ring.queued() > 0
	}
	return q.ring.queued() > 0
}

// Wait is Kick that sleeps, in the same system call, until a completion is
// there to be received, reaped or taken by Flushed, or until limit has passed.
// Without a limit (limit < 0) it costs a little less. It returns early when nothing is
// in flight or a signal arrives. It is no verb of the port: for a worker that has
// nothing else to wait for. The sleeping thread counts as a running one for
// GOMAXPROCS, which should exceed the number of such workers.
func (q *Queue) Wait(limit time.Duration) error { return q.WaitFor(1, limit) }

// WaitFor is Wait for n completions, or for all operations in flight where these
// are fewer. Being woken for every completion is what costs most at depth: with 64
// operations in flight, waiting for 16 at a time took a quarter of the CPU time off
// on a device served by the kernel's threads. It delays the first of them until the
// last is there, so it is for work that is counted by throughput; and where one
// operation may be slow, a limit keeps it from holding up the others.
func (q *Queue) WaitFor(n int, limit time.Duration) error {
	if q.closed {
		return ErrClosed
	}
	if !q.idle() {
		return q.Kick()
	}
	least := uint32(min(max(n, 1), q.flying))
	if limit < 0 {
		q.enter(least)
	} else {
		q.enterLimit(least, limit)
	}
	q.stats.publish(q)
	return q.takeFault()
}

// idle reports whether there is something to wait for and nothing to give back.
func (q *Queue) idle() bool {
	return q.flying > 0 && q.read.empty() && q.written.empty() && q.flushed.empty() && q.ring.ready() == 0
}

// enter submits and collects completions, waiting for least of them.
func (q *Queue) enter(least uint32) { q.enterWith(least, enterGetEvents, 0, 0) }

// enterLimit submits and waits for least completions no longer than limit.
func (q *Queue) enterLimit(least uint32, limit time.Duration) {
	if q.ring.polled() {
		q.pollLimit(limit)
		return
	}
	s := q.scratch
	s.limit.sec, s.limit.nsec = int64(limit/time.Second), int64(limit%time.Second)
	q.enterWith(least, enterGetEvents|enterExtArg, uintptr(address(s.wait)), uintptr(len(s.wait)))
}

// pollLimit polls until something completed or limit has passed, which a polled ring
// does not heed by itself.
func (q *Queue) pollLimit(limit time.Duration) {
	for end := time.Now().Add(limit); ; {
		q.enter(0)
		if q.ring.ready() > 0 || q.fault != nil || time.Now().After(end) {
			return
		}
	}
}

func (q *Queue) enterWith(least uint32, flags, arg, size uintptr) {
	if !q.enabled && !q.bind() {
		return
	}
	q.count.enters++
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

// explainThread names the kernel's answer to a thread that is not the ring's
// submitter.
func explainThread(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return ErrWrongThread
	}
	return err
}

// takeFault returns what went wrong since the last call.
func (q *Queue) takeFault() error {
	err := q.fault
	q.fault = nil
	return err
}
