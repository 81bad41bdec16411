package flows

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// writer is the end of a flow at a sink: segments on a disk, or a stream. Its layout
// makes records of what came, and the sink takes them in batches. It belongs to its
// worker's thread; the counters may be read from anywhere.
type writer struct {
	faults
	sink    sink
	disk    *output // the sink, nil for a stream
	layout  layout.Layout
	hands   *umem.Holder  // the worker's
	flush   time.Duration // the longest a packet waits in a batch
	opened  time.Time     // when the open batch got its first packet; zero: it is empty
	notes   atomic.Pointer[statistics]
	stuck   bool            // the sink could take no more in this round
	stalls  counter.Counter // rounds in which packets had to wait for that
	copied  layout.Copies
	snap    layout.SnapLen
	places  places
	times   arrivals
	silence silence // of the disk; the watcher's
	to      string  // where it goes, for people

	directions []pcapng.Direction // of packets, by source; nil: not known
}

// sink takes a layout's batches. Its methods run on the worker's thread and do
// not block.
type sink interface {
	// submit sends the open batch, if there is one. It returns false when it
	// cannot be taken now; the batch stays open.
	submit(now time.Time) (bool, error)
	// settle takes back what is done, and returns why something failed.
	settle(now time.Time) error
	// kick wakes the device if it asked for it.
	kick() error
	// close says that no more batches come, and reports whether all of them are
	// where they belong for good. It is called until it says so.
	close(now time.Time) (bool, error)
	// progress is how far the sink has come.
	progress() *track
	// fd polls readable when settle may have something to do; negative: never.
	fd() int
}

// settle takes back what the sink is done with.
func (w *writer) settle(now time.Time) {
	w.note(w.sink.settle(now))
	w.stuck = false
}

// put puts whole packets of one source into batches and returns how many of the
// frames it used: fewer than all when the sink can take no more now.
func (w *writer) put(source uint32, fs []umem.Frame, now time.Time) (done int) {
	for done < len(fs) {
		used := w.layout.Add(source, fs[done:])
		w.times.put(fs[done:done+used], now)
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

// record puts the whole packets a source holds into batches. What the sink can
// not take now stays with the source.
func (w *writer) record(s *source, now time.Time) bool {
	whole := umem.Whole(s.buf[:s.held])
	done := w.put(s.id, s.buf[:whole], now)
	s.held = copy(s.buf, s.buf[done:s.held])
	return done == whole
}

// away is how many frames the extents have that are in batches.
func (w *writer) away() int { return w.layout.ExtentFrames() }

// submit sends the open batch. An empty one that takes nothing means that memory
// is short until the sink gives some back.
func (w *writer) submit(now time.Time) bool {
	if w.layout.Size() == 0 {
		w.stuck = true
		return false
	}
	ok, err := w.sink.submit(now)
	w.note(err)
	if ok {
		w.opened = time.Time{}
	} else {
		w.stuck = true
	}
	return ok && err == nil
}

// tick sends a batch that has waited long enough, or that statistics wait for: they
// go first in a batch, which under steady traffic would never be empty by itself. Where nothing more is let in, a batch
// has nothing to wait for.
func (w *writer) tick(open bool, now time.Time) {
	waiting := w.notes.Load()
	late := !w.opened.IsZero() && (!open || now.Sub(w.opened) >= w.flush)
	if late || waiting != nil && w.layout.Size() > 0 {
		w.submit(now)
	}
	if waiting != nil && w.layout.Size() == 0 && w.noteNext(waiting) {
		w.opened = now
	}
}

// publish sends what is on its way to the device, and shows how far the sink has come.
func (w *writer) publish() {
	w.note(w.sink.kick())
	w.times.record(w.sink.progress())
	w.places.publish(w.sink.progress())
}

// lastNotes puts the statistics that wait into a batch of their own, and reports
// whether it could.
func (w *writer) lastNotes(now time.Time) bool {
	if w.notes.Load() != nil {
		w.submit(now)
		w.tick(true, now)
	}
	return w.notes.Load() == nil
}

func (w *writer) FDs(dst []unix.PollFd) []unix.PollFd {
	if fd := w.sink.fd(); fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

// deadline also is when to ask a sink again that could take no more: not all it
// waits for makes its descriptor readable.
func (w *writer) Deadline(now time.Time) time.Time {
	switch {
	case w.stuck:
		return now.Add(time.Millisecond)
	case w.opened.IsZero():
		return now.Add(worker.MaxWait)
	}
	return w.opened.Add(w.flush)
}

// look says what the disk makes the flow wait for.
func (w *writer) look(now time.Time) error {
	if why := w.trouble(); why != nil || w.disk == nil {
		return why
	}
	return w.silence.look(now, w.to, w.disk.store.Consequence(), w.disk.queue.Stats())
}

// full reports whether the files are as many as there are to be.
func (w *writer) full() bool { return w.disk != nil && w.disk.complete.Load() }

// trouble is what keeps batches from being written.
func (w *writer) trouble() error { return w.disk.trouble() }

func (w *writer) diagnose(err error) error {
	if w.disk == nil {
		return err
	}
	return w.disk.diagnose(err)
}

func (w *writer) pending() int {
	if w.disk == nil {
		return 0
	}
	return int(w.disk.queue.Stats().InFlight)
}

// shut closes the block queue, to whose thread the kernel bound it.
func (w *writer) shut() error {
	if w.disk == nil {
		return nil
	}
	return w.disk.queue.CloseWithin(time.Millisecond)
}
