package nvme

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// drainLimit is how long Close waits for operations in flight.
const drainLimit = 5 * time.Second

// Close takes back what was not submitted yet, cancels what can be cancelled,
// waits up to five seconds for operations in flight, and gives every frame to the
// pool. When operations do not complete it returns a StuckError and gives back only
// the frames of the others, since the device may still write to these; the region
// stays registered, and a further Close waits again. After success, closing again
// does nothing.
func (q *Queue) Close() error {
	if q.ring == nil {
		return nil
	}
	q.closed = true
	q.retract()
	q.drain(q.patience)
	if q.flying > 0 {
		stuck := &StuckError{Operations: q.flying, Cause: q.takeFault()}
		q.giveCompleted()
		stuck.Frames = q.holder.Held()
		return fmt.Errorf("close block queue %s: %w", q.name, stuck)
	}
	if err := q.release(); err != nil {
		return fmt.Errorf("close block queue %s: %w", q.name, err)
	}
	return nil
}

// StuckError says that operations did not complete in time, so that their
// frames cannot be given back.
type StuckError struct {
	Operations int   // still with the kernel
	Frames     int64 // that stay the queue's
	Cause      error // why waiting failed; nil: the device did not answer
}

func (e *StuckError) Error() string {
	s := fmt.Sprintf("%d operations have not completed and keep %d frames", e.Operations, e.Frames)
	if e.Cause != nil {
		return s + ": " + e.Cause.Error()
	}
	return s + ": the device does not answer (close again once it does)"
}

// Unwrap returns the cause.
func (e *StuckError) Unwrap() error { return e.Cause }

// retract takes back the submissions that the kernel has not read. It reads
// them only during io_uring_enter, so the tail may go back.
func (q *Queue) retract() {
	sq := &q.ring.sq
	for head := sq.head.Load(); sq.next != head; {
		sq.next--
		if data := sq.sqes[sq.next&sq.mask].userData; data != cancelData {
			q.land(uint32(data), unix.ECANCELED)
		}
	}
	sq.tail.Store(sq.next)
}

// drain waits until nothing is in flight, or for limit. What has not completed
// at once is asked to be cancelled.
func (q *Queue) drain(limit time.Duration) {
	cancelled := false
	for end := time.Now().Add(limit); q.flying > 0; {
		left := time.Until(end)
		if left <= 0 || q.fault != nil {
			return
		}
		q.enterLimit(min(left, 50*time.Millisecond))
		q.harvest()
		if !cancelled && q.flying > 0 {
			q.ring.push(sqe{opcode: opAsyncCancel, fd: -1, opFlags: cancelAny | cancelAll, userData: cancelData})
			cancelled = true
		}
	}
}

// giveCompleted returns the frames of operations that are over.
func (q *Queue) giveCompleted() {
	var dst [64]umem.Frame
	for _, from := range []*fifo{&q.read, &q.written} {
		for n := q.give(dst[:], from); n > 0; n = q.give(dst[:], from) {
			q.worker.Give(dst[:n])
		}
	}
}

// release gives everything back, in reverse order of Open. Nothing is in flight.
func (q *Queue) release() error {
	var errs []error
	if q.ring != nil {
		errs = append(errs, q.closeRing())
	}
	if q.scratch != nil {
		errs = append(errs, q.scratch.release())
	}
	errs = append(errs, q.event.close())
	if q.holder != nil {
		q.holder.Close()
	}
	q.read, q.written, q.flushed = fifo{}, fifo{}, fifo{}
	q.closed = true
	return errors.Join(errs...)
}

// closeRing closes the ring and ends its hold on the region. Unregistering
// first lets go of the memory at once; on a thread other than the ring's it is
// refused, and closing does it.
func (q *Queue) closeRing() error {
	unregistered := q.reg == nil || q.ring.unregisterBuffers() == nil
	gone, err := q.ring.close()
	q.ring = nil
	if !gone && !unregistered {
		return errors.Join(err, errors.New("the kernel has not let go of the region's memory: end the thread that used the queue"))
	}
	q.reg.Release()
	q.reg = nil
	return err
}
