package disk

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Sink = (*Writer)(nil)

// Writer writes packets or messages to segments on a disk, or to a stream. Its layout makes records
// of them, and its output writes batches of records.
type Writer struct {
	err      *pipeline.FirstError
	out      output
	segments *segmentWriter // out; nil for a stream
	layout   layout.Layout
	ring     *layout.InRing // the layout, for the blocks of a packet socket; else nil
	holder   *umem.Holder   // of the worker's frames
	flush    time.Duration  // the longest that a packet waits in a batch
	opened   time.Time      // when the open batch got its first packet; zero: it is empty
	copied   layout.Copies
	snapLen  layout.SnapLen
	to       string // destination, for messages
	health   pipeline.Health

	gather        bool // packets wait in a batch while the disk is at work
	gatherFlushes bool // flushes count as work

	blocked bool            // in this round
	stalls  counter.Counter // rounds in which packets waited for the disk

	progress progress
	durable  func() // is called when more is durable; nil: nobody asks
	times    latencyTracker

	statistics func() []pcapng.Statistics // of the source; nil: it has none
	notes      atomic.Pointer[Statistics] // waiting to be written
	lastNotes  bool                       // the final statistics were collected
}

// output takes a layout's batches. Its methods run on the worker's thread and do not block.
type output interface {
	// submit sends the open batch, if there is one. It returns false when it cannot take the batch
	// now; the batch stays open. The batch got its first packet at begun.
	submit(now, begun time.Time) (bool, error)
	// takesNotes reports whether a batch without packets can be sent.
	takesNotes() bool
	// settle takes back finished work, and returns the error if any of it failed.
	settle(now time.Time) error
	// due returns when settle must be called again though fd is not readable, at most until.
	due(now, until time.Time) time.Time
	// kick wakes the device if it needs that.
	kick() error
	// close is called after the last batch, repeatedly until it returns true. Then everything is
	// durable.
	close(now, begun time.Time) (bool, error)
	// tracker returns the progress of the output.
	tracker() *tracker
	// setLayout exchanges the layout.
	setLayout(l layout.Layout)
	// fd returns a descriptor that is readable when settle may have something to do. A negative one is
	// never readable.
	fd() int
}

func (w *Writer) Reap(now time.Time) {
	w.err.Note(w.out.settle(now))
	w.blocked = false
}

func (w *Writer) Write(b *pipeline.Batch, now time.Time) bool {
	whole := umem.Whole(b.Held())
	done := w.put(b.ID, b.Frames[:whole], now)
	b.Drop(done)
	return done == whole
}

// put makes records of whole packets and returns how many frames it used.
func (w *Writer) put(id uint32, fs []umem.Frame, now time.Time) (done int) {
	for done < len(fs) {
		used := w.layout.Add(id, fs[done:])
		w.note(fs[done:done+used], now)
		done += used
		if used == 0 && !w.submit(now) {
			w.stalls.Add(1)
			break
		}
	}
	if w.opened.IsZero() && w.layout.Size() > 0 {
		w.opened = now
	}
	return done
}

// note records the arrival of packets that the open batch has taken.
func (w *Writer) note(fs []umem.Frame, now time.Time) {
	switch {
	case w.ring == nil:
		w.times.put(fs, now)
	case len(fs) > 0:
		w.times.putBatch(w.out.tracker().submitted.Number+1, w.ring.Oldest())
	}
}

func (w *Writer) Block() {
	w.blocked = true
	w.stalls.Add(1)
}

func (w *Writer) Blocked() bool { return w.blocked }

// InFlight implements pipeline.Sink: the extents of batches.
func (w *Writer) InFlight() int { return w.layout.ExtentFrames() }

// submit sends the open batch. If an empty batch takes no packet, memory is short until the output
// returns some.
func (w *Writer) submit(now time.Time) bool {
	if w.layout.Size() == 0 {
		w.blocked = true
		return false
	}
	ok, err := w.out.submit(now, w.begun(now))
	w.err.Note(err)
	if ok {
		w.opened = time.Time{}
	} else {
		w.blocked = true
	}
	return ok && err == nil
}

// begun returns when the open batch got its first packet.
func (w *Writer) begun(now time.Time) time.Time {
	if w.opened.IsZero() {
		return now
	}
	return w.opened
}

// Flush implements pipeline.Sink. Statistics that wait must be first in a batch, so Flush sends the
// open batch: under steady traffic it would never be empty otherwise.
func (w *Writer) Flush(open bool, now time.Time) {
	if w.gathers() {
		return
	}
	w.flushNow(open, now)
}

func (w *Writer) flushNow(open bool, now time.Time) {
	notes := w.notes.Load()
	late := !w.opened.IsZero() && (!open || now.Sub(w.opened) >= w.flush || w.segments != nil && w.segments.over(now))
	if late || notes != nil && w.layout.Size() > 0 {
		w.submit(now)
	}
	if notes != nil && w.layout.Size() == 0 && w.out.takesNotes() && w.writeNotes(notes) {
		w.opened = now
	}
}

// gathers reports whether packets wait for more because the disk is at work. Messages of many
// clients then need few writes. A full batch is sent anyway.
func (w *Writer) gathers() bool {
	if !w.gather || w.segments == nil {
		return false
	}
	return !w.segments.track.idle() || w.gatherFlushes && !w.segments.flushed
}

func (w *Writer) Kick() {
	w.err.Note(w.out.kick())
	t := w.out.tracker()
	w.times.record(t)
	if w.progress.publish(t) && w.durable != nil {
		w.durable()
	}
}

// Drain implements pipeline.Sink. It returns true when everything is written and durable, including
// the final statistics.
func (w *Writer) Drain(now time.Time) (bool, error) {
	if !w.lastNotes {
		w.collectStatistics()
		w.lastNotes = true
	}
	if w.notes.Load() != nil {
		w.submit(now)
		w.flushNow(true, now)
	}
	switch {
	case w.notes.Load() == nil:
	case w.layout.Size() == 0 && !w.out.takesNotes():
		w.notes.Store(nil) // there is no segment, or it is full
	default:
		return false, nil
	}
	return w.out.close(now, w.begun(now))
}

func (w *Writer) FDs(dst []unix.PollFd) []unix.PollFd {
	if fd := w.out.fd(); fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

// Deadline implements pipeline.Sink. A blocked writer is polled again soon, because not every event
// that it waits for makes its descriptor readable. A batch that gathers waits for the disk.
func (w *Writer) Deadline(now time.Time) time.Time {
	if w.blocked {
		return now.Add(time.Millisecond)
	}
	due := w.out.due(now, now.Add(worker.MaxWait))
	if w.opened.IsZero() || w.gathers() {
		return due
	}
	due = pipeline.Earlier(due, w.opened.Add(w.flush))
	if w.segments != nil {
		if ends := w.segments.ends(); !ends.IsZero() {
			return pipeline.Earlier(due, ends)
		}
	}
	return due
}

// Full implements pipeline.Sink. It reports whether the last file is complete.
func (w *Writer) Full() bool { return w.segments != nil && w.segments.complete.Load() }

// Check implements pipeline.Sink. It also triggers writing of statistics.
func (w *Writer) Check(now time.Time) (waits, ends error) {
	w.collectStatistics()
	if w.segments == nil {
		return nil, nil
	}
	if err := w.segments.trouble(); err != nil {
		return err, nil
	}
	return w.health.Check(now, w.to, w.segments.manager.Consequence(), w.segments.queue.Stats()), nil
}

func (w *Writer) Trouble() error {
	if w.segments == nil {
		return nil
	}
	return w.segments.trouble()
}

func (w *Writer) Diagnose(err error) error {
	if w.segments == nil {
		return err
	}
	return w.segments.diagnose(err)
}

func (w *Writer) Pending() int {
	if w.segments == nil {
		return 0
	}
	return int(w.segments.queue.Stats().InFlight)
}

// Close implements pipeline.Sink. It runs on the worker's thread, because the kernel has bound the
// block queue to that thread.
func (w *Writer) Close() error {
	if w.segments == nil {
		return nil
	}
	return w.segments.queue.CloseWithin(time.Millisecond)
}

// Shrink implements pipeline.Sink. A stream never shrinks, because its daemon has no other flow.
func (w *Writer) Shrink(q pipeline.Quota) (over bool) {
	p, ok := w.layout.(*layout.Packed)
	return ok && w.holder != nil && p.ReleaseExcess(w.holder, max(q.Extents, pipeline.MinExtents))
}

// PacketsWritten returns the number of packets written, a prefix. It is for the worker's thread.
func (w *Writer) PacketsWritten() uint64 { return w.out.tracker().written.Packets }

// PacketsDurable returns the number of durable packets, a prefix. It is for the worker's thread.
func (w *Writer) PacketsDurable() uint64 { return w.out.tracker().durable.Packets }

// DurableShown is PacketsDurable for other goroutines. It may lag by a round.
func (w *Writer) DurableShown() uint64 { return w.progress.packetsDurable() }

// MaxBatch returns the largest length of a batch that is written in one piece to a segment: a
// quarter of a segment.
func (w *Writer) MaxBatch() uint64 { return w.segments.manager.Size() / 4 }

// Pins reports whether the disk pins each block of a packet socket when it writes it, because the limit of
// locked memory, or a kernel before 6.5, did not allow to register the ring.
func (w *Writer) Pins() bool {
	return w.ring != nil && w.segments != nil && !w.segments.queue.Granted().Outside
}

// Align is the alignment of batches in bytes; 1 for a stream.
func (w *Writer) Align() uint32 {
	if w.segments == nil {
		return 1
	}
	return w.segments.manager.Align()
}

// WrapLayout replaces the layout by a wrapper of it, to watch where frames go. It must be called
// before packets arrive, on the worker's thread.
func (w *Writer) WrapLayout(wrap func(layout.Layout) layout.Layout) {
	w.layout = wrap(w.layout)
	w.out.setLayout(w.layout)
}
