package disk

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// segmentWriter is the output that writes batches to segments, one after the other, and tracks
// which of them are written and durable. It belongs to the worker's thread.
type segmentWriter struct {
	region  *umem.Region
	queue   *nvme.Queue
	layout  layout.Layout
	manager *segment.Manager
	every   time.Duration // begin a new segment after this time; 0: only when full
	sync    time.Duration // time between flushes; 0: flush full segments only

	track        tracker
	retries      retryQueue
	current      *segment.Segment
	retired      []*segment.Segment // full and not durable yet, oldest first
	flushing     segment.Position   // position that the flush under way makes durable
	flushed      bool               // no flush is under way
	complete     atomic.Bool        // the last segment is full
	nextSync     time.Time
	failedTarget atomic.Pointer[nvme.Target] // first target that failed
	reaped       [pipeline.Burst]umem.Frame
	results      [4]nvme.FlushResult
}

func (o *segmentWriter) submit(now, begun time.Time) (bool, error) {
	size := o.layout.Size()
	if size == 0 {
		return true, nil
	}
	if !o.track.room() {
		return false, nil
	}
	if ok, err := o.place(size, now, begun); !ok {
		return false, err
	}
	return o.send(size), nil
}

// takesNotes reports whether a batch of statistics alone has a place. A segment begins with its first packet: statistics
// are put into the current one, though it is time for the next. Only a file with a name that the user chose begins with
// them.
func (o *segmentWriter) takesNotes() bool {
	if o.current == nil {
		return o.manager.BeginsEmpty()
	}
	return o.current.Fits(noteRoom + uint64(o.manager.Align()))
}

// noteRoom is more than a batch of statistics takes before it is padded.
const noteRoom = maxStatistics + pcapng.MaxAlign

// place ensures that the current segment has space for a batch of size bytes. It returns false
// while no segment has.
func (o *segmentWriter) place(size uint64, now, begun time.Time) (bool, error) {
	opened := o.intervalStart(begun)
	if s := o.current; s != nil {
		packets, _ := o.layout.Count()
		due := o.isOver(begun) && packets > 0
		if !due && s.Fits(size) {
			return true, nil
		}
		if !due && s.Unbounded() { // the manager preallocates more
			o.manager.WaitForSpace(now)
			return false, nil
		}
		if !due && o.manager.Rotates() {
			opened = s.Opened // files with the same time have the same name and an index
		}
	}
	if len(o.retired)+2 > segment.MaxOpen {
		return false, nil // wait until one of the retired segments is durable
	}
	next := o.manager.Acquire(opened)
	if next == nil {
		o.manager.WaitForSpace(now)
		return false, nil
	}
	o.manager.EndWait()
	index, err := o.queue.Add(next.Target)
	if err != nil {
		next.Damaged = true // it has no batches
		o.manager.Retire(next)
		o.failedTarget.CompareAndSwap(nil, next.Target)
		return false, fmt.Errorf("begin segment %s: %w", next.Path(), err)
	}
	o.retire()
	next.Index, next.Opened, next.Before = index, opened, o.manager.PacketsBefore(o.track.submitted.Packets)
	o.current = next
	return next.Fits(size), nil
}

// isOver reports whether it is time for a new segment. If the current segment is the last one, it
// marks the flow as complete instead.
func (o *segmentWriter) isOver(now time.Time) bool {
	if o.every == 0 || o.current.Sequence == 0 || now.Sub(o.current.Opened) < o.every {
		return false
	}
	if o.manager.IsLast(o.current.Number) {
		o.complete.Store(true)
		return false
	}
	return true
}

// intervalStart returns when the interval began that has the time at. Intervals follow each other without a gap from the
// first segment on, whether there is traffic or not. Those of whole seconds begin with a second, as tcpdump's, so that no
// two have the same name.
func (o *segmentWriter) intervalStart(at time.Time) time.Time {
	if o.every == 0 {
		return at
	}
	if o.current != nil {
		at = at.Add(-(at.Sub(o.current.Opened) % o.every))
	}
	switch {
	case o.every%time.Second != 0:
		return at
	case o.current == nil:
		return at.Add(-time.Duration(at.Nanosecond()))
	}
	return at.Add(at.Round(time.Second).Sub(at)) // both clocks are not read at once, and that of the system is set at times
}

// over reports whether the current segment's time is over.
func (o *segmentWriter) over(now time.Time) bool {
	return o.every != 0 && o.current != nil && now.Sub(o.current.Opened) >= o.every
}

// ends returns when the current segment's time is over; zero: never.
func (o *segmentWriter) ends() time.Time {
	if o.every == 0 || o.current == nil {
		return time.Time{}
	}
	return o.current.Opened.Add(o.every)
}

// retire ends the current segment after its last batch.
func (o *segmentWriter) retire() {
	if o.current != nil {
		o.current.Last = o.track.submitted
		o.retired = append(o.retired, o.current)
		o.current = nil
	}
}

// send submits the open batch to the current segment.
func (o *segmentWriter) send(size uint64) bool {
	s := o.current
	packets, bytes := o.layout.Count()
	message := o.layout.Seal(s.Batch(o.track.durableIn(s), o.track.submitted.Packets))
	side := o.queue.Side(message[0])
	side.Target, side.Block, side.Token = s.Index, s.Base+s.Next, o.track.submitted.Number+1
	if o.queue.Send(message) == 0 {
		side.Token = 0
		return false
	}
	s.Next += size
	s.Advance()
	s.Sequence++
	o.track.submitted.Newest = max(o.track.submitted.Newest, o.layout.Newest())
	o.track.submit(s, s.Next, uint64(packets), bytes)
	o.layout.Reset()
	return true
}

// reap takes back frames from the disk, and returns the error of a failed write.
func (o *segmentWriter) reap() (err error) {
	for {
		n := o.queue.Reap(o.reaped[:])
		free := o.reaped[:0]
		for _, f := range o.reaped[:n] {
			if o.keepForRetry(f) {
				continue
			}
			if e := o.written(f); e != nil && err == nil {
				err = e
			}
			free = append(free, f)
		}
		o.layout.Free(free)
		if n < len(o.reaped) {
			return err
		}
	}
}

// written records that the batch whose first frame is f is written.
func (o *segmentWriter) written(f umem.Frame) error {
	side := o.queue.Side(f)
	number := side.Token
	if number == 0 {
		return nil
	}
	side.Token = 0
	if err := f.Err(); err != nil {
		return o.explain(number, err)
	}
	o.track.complete(number)
	o.manager.Written(o.track.ring[number%queueDepth].Segment)
	return nil
}

// explain describes a failed write.
func (o *segmentWriter) explain(number uint64, err error) error {
	m := o.track.ring[number%queueDepth]
	o.failedTarget.CompareAndSwap(nil, m.Segment.Target)
	if _, ring := o.manager.Numbers(); ring { // the kernel's state says more than the error of the write
		err = cmp.Or(m.Segment.Target.Health(), err)
	}
	if errors.Is(err, unix.EFBIG) {
		err = nvme.FileSizeLimit(err)
	}
	return fmt.Errorf("write to %s before offset %d: %w; the packets of that write are lost and counted", m.Segment.Path(), m.Segment.Base+m.End, err)
}

// settle takes back finished writes and flushes, retires durable segments and starts the next flush
// if one is due.
func (o *segmentWriter) settle(now time.Time) error {
	if err := o.reap(); err != nil {
		return err
	}
	o.retry(now)
	n := o.queue.Flushed(o.results[:])
	for _, r := range o.results[:n] {
		if r.Err != nil {
			o.failedTarget.CompareAndSwap(nil, o.flushing.Segment.Target)
			return fmt.Errorf("flush %s: %w; what was written since the last flush may be lost", o.flushing.Segment.Path(), r.Err)
		}
		o.flushed = true
		o.track.durable = o.flushing
	}
	if why := o.manager.Failure(); why != nil {
		return why
	}
	if err := o.handBack(); err != nil {
		return err
	}
	return o.flush(now)
}

// handBack gives durable segments back to the manager.
func (o *segmentWriter) handBack() error {
	for len(o.retired) > 0 && o.retired[0].Durable(o.track.durable) {
		s := o.retired[0]
		if err := o.queue.Remove(s.Index); err != nil {
			return fmt.Errorf("end segment %s: %w", s.Path(), err)
		}
		o.manager.Retire(s)
		o.retired = o.retired[:copy(o.retired, o.retired[1:])]
	}
	return nil
}

// unflushed returns the oldest segment that needs a flush, how far it is written, and when the flush may begin. It returns
// nil if no segment needs one that can begin before a descriptor is readable.
func (o *segmentWriter) unflushed() (s *segment.Segment, upTo segment.Position, from time.Time) {
	s, upTo, from = o.current, o.track.written, o.nextSync
	switch {
	case !o.flushed:
		return nil, upTo, from
	case len(o.retired) > 0:
		s, upTo, from = o.retired[0], o.retired[0].Last, time.Time{}
		if o.track.written.Number < upTo.Number {
			return nil, upTo, from
		}
	case s == nil || o.sync == 0:
		return nil, upTo, from
	}
	if upTo.Number == o.track.durable.Number {
		return nil, upTo, from
	}
	return s, upTo, from
}

// due returns when settle must be called again though no descriptor is readable, at most until.
func (o *segmentWriter) due(now, until time.Time) time.Time {
	until = o.retries.due(until)
	s, _, from := o.unflushed()
	switch {
	case s == nil:
		return until
	case from.After(now):
		return pipeline.Earlier(until, from)
	}
	return pipeline.Earlier(until, now.Add(time.Millisecond)) // the manager's goroutine makes the name durable, or the queue was full
}

// flush starts a flush of the oldest segment that needs one.
func (o *segmentWriter) flush(now time.Time) error {
	s, upTo, from := o.unflushed()
	if s == nil || now.Before(from) || !s.NameDurable() {
		return nil
	}
	if err := o.queue.Flush(s.Index, upTo.Number); err != nil {
		return nil // the queue is full: try again in the next round
	}
	o.flushed, o.flushing, o.nextSync = false, upTo, now.Add(o.sync)
	o.flushing.Segment = s
	return nil
}

// close returns true when everything is durable and the manager has all segments.
func (o *segmentWriter) close(now, begun time.Time) (bool, error) {
	if ok, err := o.submit(now, begun); !ok || err != nil {
		return false, err
	}
	o.retire()
	return len(o.retired) == 0 && o.track.idle(), nil
}

// trouble returns the reason why batches cannot be written, or why the next segment is not ready.
// Any goroutine may call it.
func (o *segmentWriter) trouble() error {
	if why := o.retries.trouble.Load(); why != nil {
		return *why
	}
	return o.manager.Blocked()
}

func (o *segmentWriter) kick() error { return o.queue.Kick() }

func (o *segmentWriter) tracker() *tracker { return &o.track }

func (o *segmentWriter) setLayout(l layout.Layout) { o.layout = l }

func (o *segmentWriter) fd() int { return o.queue.FD() }

// abandon gives the segments of a failed flow back to the manager. The manager keeps the batches
// that reached the disk. The queue is closed.
func (o *segmentWriter) abandon() error {
	o.retire()
	for _, s := range o.retired {
		s.Damaged = true
		o.manager.Retire(s)
	}
	o.retired = nil
	return nil
}
