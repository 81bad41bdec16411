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

// Close retracts what was not submitted yet, cancels what can be cancelled, waits up to five seconds for
// operations in flight, and gives every frame to the pool. If operations do not complete, it returns a
// StuckError and keeps their frames, because the device may still write to them. It gives back all other
// frames. The region then stays registered, and a further Close waits again. After success a second call does
// nothing. Unlike the other methods, Close may be called on another thread once the queue's own thread has
// ended.
func (q *Queue) Close() error { return q.CloseWithin(q.closeTimeout) }

// CloseWithin is Close that waits at most limit for operations in flight. It is for a thread that
// has other work and repeats the call while it returns a StuckError.
func (q *Queue) CloseWithin(limit time.Duration) error {
	if q.ring == nil {
		return nil
	}
	end := time.Now().Add(limit)
	if !q.closed {
		q.closed = true
		q.retract()
		q.drain(end)
		q.giveCompleted()
	}
	if err := q.release(end); err != nil {
		return fmt.Errorf("close block queue %s: %w", q.name, err)
	}
	return nil
}

// StuckError says that operations did not complete in time, so their frames cannot be given back.
type StuckError struct {
	Operations int   // still with the kernel
	Frames     int64 // frames that the queue keeps
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

// retract removes the submissions that the kernel has not read. The kernel reads them only during
// io_uring_enter, so the tail may go back.
func (q *Queue) retract() {
	sq := &q.ring.sq
	head := sq.head.Load()
	for sq.next != head {
		sq.next--
		if data := sq.sqes[(sq.next&sq.mask)<<q.ring.wide].userData; data != cancelData {
			q.completeOp(uint32(data), unix.ECANCELED)
		}
	}
	sq.tail.Store(sq.next)
}

// drain waits until nothing is in flight, or until end. It asks the kernel to cancel what does not
// complete at once, and gives up if the kernel refuses.
func (q *Queue) drain(end time.Time) {
	q.fault = nil
	for asked := false; q.inFlight > 0 && q.fault == nil && time.Now().Before(end); asked = true {
		q.enterLimit(1, min(time.Until(end), 50*time.Millisecond))
		q.harvest()
		if !asked && q.inFlight > 0 && q.ring.queued() <= q.ring.sq.mask {
			q.ring.push(sqe{opcode: opAsyncCancel, fd: -1, opFlags: cancelAny | cancelAll, userData: cancelData})
		}
	}
}

// giveCompleted returns the frames of operations that are over.
func (q *Queue) giveCompleted() {
	var dst [64]umem.Frame
	for _, from := range []*fifo{&q.read, &q.written} {
		for n := q.give(dst[:], from); n > 0; n = q.give(dst[:], from) {
			q.eachInside(dst[:n], q.worker.Give)
		}
	}
}

// release releases everything, in reverse order of Open.
func (q *Queue) release(end time.Time) error {
	var errs []error
	if q.ring != nil {
		if err := q.closeRing(end); err != nil {
			return err
		}
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

// goneLimit is how long Close waits until the kernel has torn down a ring with nothing in flight.
// That takes milliseconds.
const goneLimit = 2 * time.Second

// closeRing closes the ring and ends its hold on the region. When the ring is gone, no operation is left,
// whichever thread submitted it. While operations may be in flight, closeRing releases nothing. Without
// any, it unregisters the buffers, and only the rings themselves may outlive the queue.
func (q *Queue) closeRing(end time.Time) error {
	limit, free := time.Until(end), false
	if q.inFlight == 0 {
		limit, free = goneLimit, q.reg == nil || q.unregistered || q.ring.unregisterBuffers() == nil
	}
	gone, err := q.ring.close(limit)
	switch {
	case gone:
	case free:
		q.ring.memory.abandon()
	case q.inFlight > 0:
		return errors.Join(err, &StuckError{q.inFlight, q.holder.Held(), q.takeFault()})
	default:
		return errors.Join(err, errors.New("the kernel still uses the region's memory: end the thread that used the queue and close again"))
	}
	err = errors.Join(err, q.ring.gone.close())
	q.reg.Release()
	q.ring, q.reg, q.inFlight = nil, nil, 0
	q.stats.publish(q)
	return err
}
