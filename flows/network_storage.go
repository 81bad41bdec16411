package flows

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/umem"
	"golang.org/x/sys/unix"
)

// networkStorage takes packets from the queues of one interface to a sink:
// segments on a disk, or a stream.
//
//	AF_XDP Recv → record → NVMe Send … Reap → AF_XDP Supply
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type networkStorage struct {
	intake
	sink   sink
	book   *umem.Book
	layout layout
	flush  time.Duration // the longest a packet waits in a batch
	opened time.Time     // when the open batch got its first packet; zero: it is empty
	notes  atomic.Pointer[statistics]
	failed atomic.Pointer[error] // the first cause; no new packets after it
	stuck  bool                  // the sink could take no more in this round
	stalls atomic.Uint64         // rounds in which packets had to wait for that; the worker is the only writer
	copied copies
	places places
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

// poll is one round.
func (n *networkStorage) poll(now time.Time) (more bool) {
	n.note(n.sink.settle(now))
	n.stuck = false
	if n.failed.Load() == nil {
		more = n.receive(n, now)
		n.tick(now)
	}
	n.supply()
	n.note(n.sink.kick())
	n.kick()
	n.places.publish(n.sink.progress())
	n.book.Publish()
	return more
}

// note keeps the first error. Only an error is put on the heap, which the address
// of the parameter would be each time.
func (n *networkStorage) note(err error) {
	if err != nil {
		first := err
		n.failed.CompareAndSwap(nil, &first)
	}
}

// record puts the whole packets a source holds into batches. What the sink can
// not take now stays with the source.
func (n *networkStorage) record(s *source, now time.Time) bool {
	whole, done := umem.Whole(s.buf[:s.held]), 0
	for done < whole {
		used := n.layout.add(s.id, s.buf[done:whole])
		done += used
		if used == 0 && !n.submit(now) {
			add(&n.stalls, 1)
			break
		}
	}
	s.held = copy(s.buf, s.buf[done:s.held])
	if n.opened.IsZero() && n.layout.size() > 0 {
		n.opened = now
	}
	return done == whole
}

// submit sends the open batch. An empty one that takes nothing means that memory
// is short until the sink gives some back.
func (n *networkStorage) submit(now time.Time) bool {
	if n.layout.size() == 0 {
		n.stuck = true
		return false
	}
	ok, err := n.sink.submit(now)
	n.note(err)
	if ok {
		n.opened = time.Time{}
	} else {
		n.stuck = true
	}
	return ok && err == nil
}

// tick sends a batch that has waited long enough, or that statistics wait for: they
// go first in a batch, which under steady traffic would never be empty by itself.
func (n *networkStorage) tick(now time.Time) {
	waiting := n.notes.Load()
	late := !n.opened.IsZero() && now.Sub(n.opened) >= n.flush
	if late || waiting != nil && n.layout.size() > 0 {
		n.submit(now)
	}
	if waiting != nil && n.layout.size() == 0 && n.noteNext(waiting) {
		n.opened = now
	}
}

// lastNotes puts the statistics that wait into a batch of their own, and reports
// whether it could.
func (n *networkStorage) lastNotes(now time.Time) bool {
	if n.notes.Load() != nil {
		n.submit(now)
		n.tick(now)
	}
	return n.notes.Load() == nil
}

func (n *networkStorage) fds(dst []unix.PollFd) []unix.PollFd {
	if fd := n.sink.fd(); fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if n.stuck {
		return dst // packets that wait are no news
	}
	return n.intake.fds(dst)
}

// deadline also is when to ask a sink again that could take no more: not all it
// waits for makes its descriptor readable.
func (n *networkStorage) deadline(now time.Time) time.Time {
	switch {
	case n.stuck:
		return now.Add(time.Millisecond)
	case n.opened.IsZero():
		return now.Add(longest)
	}
	return n.opened.Add(n.flush)
}
