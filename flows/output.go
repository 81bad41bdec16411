package flows

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// output is the sink that writes batches to segments, one behind the other, and
// knows how far they are written and durable. It belongs to the worker's thread.
type output struct {
	region *umem.Region
	queue  *nvme.Queue
	layout layout.Layout
	store  *segment.Manager
	every  time.Duration // a new segment after this time; 0: when full
	sync   time.Duration // between flushes to stable storage; 0: only of full segments

	track     track
	unwritten unwritten
	current   *segment.Segment
	retired   []*segment.Segment // take no more batches; oldest first, until durable
	flushing  segment.Position   // what the flush under way makes durable
	flushed   bool               // no flush is under way
	complete  atomic.Bool        // no more segments are to be
	nextSync  time.Time
	sick      atomic.Pointer[nvme.Target] // the first that failed
	reaped    [burst]umem.Frame
	results   [4]nvme.FlushResult
}

func (o *output) submit(now time.Time) (bool, error) {
	size := o.layout.Size()
	if size == 0 {
		return true, nil
	}
	if !o.track.room() {
		return false, nil
	}
	if ok, err := o.place(size, now); !ok {
		return false, err
	}
	return o.send(size), nil
}

// place makes the current segment one that takes size bytes.
func (o *output) place(size uint64, now time.Time) (bool, error) {
	opened := now
	if s := o.current; s != nil && !o.due(now) {
		if s.Fits(size) {
			return true, nil
		}
		if s.Unbounded() { // once there is room
			o.store.WaitForSpace(now)
			return false, nil
		}
		if o.store.Rotates() {
			opened = s.Opened // its name is of the same time
		}
	}
	if len(o.retired)+2 > segment.MaxOpen {
		return false, nil // until one of them is durable
	}
	next := o.store.Acquire(opened)
	if next == nil {
		o.store.WaitForSpace(now)
		return false, nil
	}
	o.store.EndWait()
	index, err := o.queue.Add(next.Target)
	if err != nil {
		next.Damaged = true // nothing is in it
		o.store.Retire(next)
		o.sick.CompareAndSwap(nil, next.Target)
		return false, fmt.Errorf("begin segment %s: %w", next.Path(), err)
	}
	o.retire()
	next.Index, next.Opened, next.Before = index, opened, o.store.PacketsBefore(o.track.submitted.Packets)
	o.current = next
	return next.Fits(size), nil
}

// due reports whether it is time for a new segment. Where there is to be none, the flow is done.
func (o *output) due(now time.Time) bool {
	if o.every == 0 || o.current.Sequence == 0 || now.Sub(o.current.Opened) < o.every {
		return false
	}
	if o.store.IsLast(o.current.Number) {
		o.complete.Store(true)
		return false
	}
	return true
}

// retire says that the current segment takes no more batches.
func (o *output) retire() {
	if o.current != nil {
		o.current.Last = o.track.submitted
		o.retired = append(o.retired, o.current)
		o.current = nil
	}
}

// send submits the open batch to the current segment.
func (o *output) send(size uint64) bool {
	s := o.current
	packets, bytes := o.layout.Count()
	message := o.layout.Seal(s.Batch(o.track.durableIn(s), o.track.submitted.Packets))
	side := o.region.Side(message[0])
	side.Target, side.Block, side.Token = s.Index, s.Base+s.Next, o.track.submitted.Number+1
	if o.queue.Send(message) == 0 {
		side.Token = 0
		return false
	}
	s.Next += size
	s.Reached.Store(s.Next)
	s.Sequence++
	o.track.submitted.Newest = max(o.track.submitted.Newest, o.layout.Newest())
	o.track.submit(s, s.Next, uint64(packets), bytes)
	o.layout.Reset()
	return true
}

// reap takes back what the disk is done with and returns why a write failed.
func (o *output) reap() (err error) {
	for {
		n := o.queue.Reap(o.reaped[:])
		free := o.reaped[:0]
		for _, f := range o.reaped[:n] {
			if o.keepUnwritten(f) {
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

// written notes the batch a frame was the first of.
func (o *output) written(f umem.Frame) error {
	side := o.region.Side(f)
	number := side.Token
	if number == 0 {
		return nil
	}
	side.Token = 0
	if err := f.Err(); err != nil {
		return o.explain(number, err)
	}
	o.track.complete(number)
	return nil
}

// explain tells which write failed.
func (o *output) explain(number uint64, err error) error {
	m := o.track.ring[number%window]
	o.sick.CompareAndSwap(nil, m.Segment.Target)
	if _, ring := o.store.Numbers(); ring { // what the kernel knows says more than what it answered
		err = cmp.Or(m.Segment.Target.Health(), err)
	}
	return fmt.Errorf("write to %s before offset %d: %w; the packets of that write are lost and counted", m.Segment.Path(), m.Segment.Base+m.End, err)
}

// settle takes back what is written or flushed, hands durable segments to the
// store and starts the next flush if one is due.
func (o *output) settle(now time.Time) error {
	if err := o.reap(); err != nil {
		return err
	}
	o.writeAgain(now)
	n := o.queue.Flushed(o.results[:])
	for _, r := range o.results[:n] {
		if r.Err != nil {
			o.sick.CompareAndSwap(nil, o.flushing.Segment.Target)
			return fmt.Errorf("flush %s: %w; what was written since the last flush may be lost", o.flushing.Segment.Path(), r.Err)
		}
		o.flushed = true
		o.track.durable = o.flushing
	}
	if why := o.store.Failure(); why != nil {
		return why
	}
	if err := o.handBack(); err != nil {
		return err
	}
	return o.flush(now)
}

// handBack gives durable segments to the store.
func (o *output) handBack() error {
	for len(o.retired) > 0 && o.retired[0].Durable(o.track.durable) {
		s := o.retired[0]
		if err := o.queue.Remove(s.Index); err != nil {
			return fmt.Errorf("end segment %s: %w", s.Path(), err)
		}
		o.store.Retire(s)
		o.retired = o.retired[:copy(o.retired, o.retired[1:])]
	}
	return nil
}

// flush starts a flush of the oldest segment that needs one.
func (o *output) flush(now time.Time) error {
	if !o.flushed {
		return nil
	}
	s, upTo := o.current, o.track.written
	switch {
	case len(o.retired) > 0:
		if s, upTo = o.retired[0], o.retired[0].Last; o.track.written.Number < upTo.Number {
			return nil
		}
	case s == nil || o.sync == 0 || now.Before(o.nextSync):
		return nil
	}
	if upTo.Number == o.track.durable.Number || !s.NameDurable() {
		return nil
	}
	if err := o.queue.Flush(s.Index, upTo.Number); err != nil {
		return nil // the queue is full: next round
	}
	o.flushed, o.flushing, o.nextSync = false, upTo, now.Add(o.sync)
	o.flushing.Segment = s
	return nil
}

// close ends when everything is durable and every segment back with the store.
func (o *output) close(now time.Time) (bool, error) {
	if ok, err := o.submit(now); !ok || err != nil {
		return false, err
	}
	o.retire()
	return len(o.retired) == 0 && o.track.idle(), nil
}

// trouble is what keeps batches from being written or the next segment from being
// ready. It may be asked from
// any goroutine.
func (o *output) trouble() error {
	if o == nil {
		return nil
	}
	if why := o.unwritten.trouble.Load(); why != nil {
		return *why
	}
	return o.store.Blocked()
}

func (o *output) kick() error { return o.queue.Kick() }

func (o *output) progress() *track { return &o.track }

func (o *output) fd() int { return o.queue.FD() }

// surrender gives the segments of a flow that failed back to the store, which
// keeps what reached the disk. The queue is closed by now.
func (o *output) surrender() error {
	o.retire()
	for _, s := range o.retired {
		s.Damaged = true
		o.store.Retire(s)
	}
	o.retired = nil
	return nil
}
