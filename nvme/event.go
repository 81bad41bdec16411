package nvme

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// event is the descriptor behind FD. The ring's own descriptor does not work: with
// IORING_SETUP_DEFER_TASKRUN a completion does not wake a thread that sleeps in poll(2) on it. So
// an eventfd is registered with the ring (IORING_REGISTER_EVENTFD). The kernel sets it for
// completions, and the Queue for operations that never reached the kernel. The Queue clears it when
// everything has been returned.
//
// The kernel sets it after a completion is visible. So it may be set when the Queue has returned the completion and
// cleared the event. Then waits end at once, with nothing to return, until a later FD clears the event: the second,
// fourth, eighth and so on after a completion. Otherwise no thread could sleep until the next completion.
type event struct {
	fd  int     // -1 until FD is called
	set bool    // it may be readable
	old uint32  // calls of FD since something has completed
	one [8]byte // what setting it writes
	was [8]byte // what clearing it reads
}

// FD returns a descriptor that polls readable while Recv, Reap or Flushed have something to return. The
// first call makes it, because each completion then costs a little more. The queue owns it and closes it.
// FD is -1 if the queue is closed, or if there is no descriptor; the next Kick returns the reason.
func (q *Queue) FD() int {
	if q.event.fd >= 0 || q.closed {
		if q.event.old++; q.event.old > 1 && q.event.old&(q.event.old-1) == 0 && !q.closed {
			q.event.set = true
			q.quiet()
		}
		return q.event.fd
	}
	if err := q.openEvent(); err != nil {
		q.fault = fmt.Errorf("make a descriptor to wait on for block queue %s: %w", q.name, explainThread(err))
	}
	return q.event.fd
}

func (q *Queue) openEvent() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	if err := q.ring.setEvent(int32(fd)); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	q.event.fd = fd
	if q.pending() {
		q.raise()
	}
	return nil
}

// pending reports whether there is something to return.
func (q *Queue) pending() bool {
	return !q.read.empty() || !q.written.empty() || !q.flushed.empty() || q.ring.ready() > 0 || q.ring.needsGetEvents()
}

// raise sets the event. A full counter counts as set.
func (q *Queue) raise() {
	q.event.set = true
	binary.NativeEndian.PutUint64(q.event.one[:], 1)
	for {
		if _, err := unix.Write(q.event.fd, q.event.one[:]); err != unix.EINTR {
			return
		}
	}
}

// quiet clears the event when everything has been returned. A completion that arrives during the
// call sets it again. The kernel sets the event after the completion is visible. So a second look
// after clearing finds a completion that came before.
func (q *Queue) quiet() {
	if q.event.fd < 0 || !q.event.set || q.pending() {
		return
	}
	q.event.set = false
	for {
		if _, err := unix.Read(q.event.fd, q.event.was[:]); err != unix.EINTR {
			break
		}
	}
	if q.pending() {
		q.raise()
	}
}

// close closes the event after the ring has released it.
func (e *event) close() error {
	if e.fd < 0 {
		return nil
	}
	err := unix.Close(e.fd)
	e.fd = -1
	return err
}
