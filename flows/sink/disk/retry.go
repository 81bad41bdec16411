package disk

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/umem"
)

// retryQueue holds batches that the full disk refused. It writes them again to the same place until
// the disk has space. It belongs to the worker's thread.
type retryQueue struct {
	frames  []umem.Frame // whole messages; their Side has the place
	keeping bool         // the current failed message is kept
	last    uint64       // number of the last batch without space
	next    time.Time    // of the next attempt
	trouble atomic.Pointer[error]
}

// full reports whether a batch failed for lack of space that can be freed. A device that is gone
// also reports no space; that does not count.
func (o *segmentWriter) full(number uint64, err error) bool {
	_, ring := o.manager.Numbers()
	return segment.NoSpace(err) && (!ring || o.track.ring[number%queueDepth].Segment.Target.Health() == nil)
}

// keepForRetry keeps the frame of a failed write if the disk is full, and reports whether it did.
// All frames of a message come back with the same error.
func (o *segmentWriter) keepForRetry(f umem.Frame) bool {
	if f.Options&umem.Failed == 0 {
		return false
	}
	u := &o.retries
	if number := o.queue.Side(f).Token; number != 0 {
		if u.keeping = o.full(number, f.Err()); u.keeping {
			u.last = max(u.last, number)
			o.reportNoSpace(number, f.Err())
		}
	}
	if !u.keeping {
		return false
	}
	f.Options &= umem.KernelOptions
	u.frames = append(u.frames, f)
	return true
}

// reportNoSpace publishes which write found no space, once each time the disk fills up.
func (o *segmentWriter) reportNoSpace(number uint64, err error) {
	if o.retries.trouble.Load() != nil {
		return
	}
	m := o.track.ring[number%queueDepth]
	err = fmt.Errorf("write to %s before offset %d: %w (make room; until then %s)",
		m.Segment.Path(), m.Segment.Base+m.End, err, o.manager.Consequence())
	o.retries.trouble.Store(&err)
}

// retry sends kept batches again from time to time, and ends the report when all are written.
func (o *segmentWriter) retry(now time.Time) {
	u := &o.retries
	if u.last != 0 && o.track.written.Number >= u.last {
		u.last = 0
		u.trouble.Store(nil)
	}
	if len(u.frames) == 0 || now.Before(u.next) {
		return
	}
	rest := u.frames
	for len(rest) > 0 {
		n, _ := umem.PacketLen(rest)
		if o.queue.Send(rest[:n]) == 0 {
			break
		}
		rest = rest[n:]
	}
	u.frames = u.frames[:copy(u.frames, rest)]
	u.next = now.Add(segment.RetryInterval)
}

// NoSpace is Trouble for a disk that has no space. Any goroutine may call it.
func (w *Writer) NoSpace() error {
	if err := w.Trouble(); segment.NoSpace(err) {
		return err
	}
	return nil
}

// due returns when retry must be called again, at most until.
func (u *retryQueue) due(until time.Time) time.Time {
	if len(u.frames) == 0 {
		return until
	}
	return pipeline.Earlier(until, u.next)
}
