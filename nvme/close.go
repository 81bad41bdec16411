package nvme

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// drainLimit is how long Close waits for operations in flight.
const drainLimit = 5 * time.Second

// Close cancels what can be cancelled, waits up to five seconds for the
// operations in flight, and gives every frame back to the pool. Frames whose
// operations did not complete stay the queue's, since the device may still write to
// them: the error says how many, the region stays registered, and a later Close
// waits again. After success, closing again does nothing.
func (q *Queue) Close() error {
	if q.closed && q.ring == nil {
		return nil
	}
	q.closed = true
	q.drain(drainLimit)
	if q.flying > 0 {
		q.giveCompleted()
		return fmt.Errorf("close block queue %s: %w", q.name, &StuckError{q.flying, q.holder.Held(), q.takeFault()})
	}
	if err := q.release(); err != nil {
		return fmt.Errorf("close block queue %s: %w", q.name, err)
	}
	return nil
}

// StuckError says that operations did not complete in time, so that their
// frames cannot be given back.
type StuckError struct {
	Operations int
	Frames     int64
	Cause      error // of the waiting, where it failed; may be nil
}

func (e *StuckError) Error() string {
	s := fmt.Sprintf("the device has not completed %d operations, which keep %d frames: close again once it answers", e.Operations, e.Frames)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *StuckError) Unwrap() error { return e.Cause }

// drain waits until nothing is in flight, or for limit.
func (q *Queue) drain(limit time.Duration) {
	deadline := time.Now().Add(limit)
	cancelled := false
	for q.flying > 0 {
		left := time.Until(deadline)
		if left <= 0 || q.fault != nil {
			return
		}
		q.enterLimit(min(left, 100*time.Millisecond))
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
		errs = append(errs, q.ring.unregisterSelf())
		if q.reg != nil {
			errs = append(errs, q.ring.unregisterBuffers())
		}
		errs = append(errs, q.ring.close())
		q.reg.Release()
		q.ring, q.reg = nil, nil
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
