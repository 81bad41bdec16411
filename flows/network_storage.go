package flows

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
	"golang.org/x/sys/unix"
)

// burst is the most frames a verb moves at once.
const burst = 64

// networkStorage takes packets from the queues of one interface to segments on
// one disk:
//
//	AF_XDP Recv → record → NVMe Send … Reap → AF_XDP Supply
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type networkStorage struct {
	output
	book    *umem.Book
	sources []source
	first   int // the source that is served first in this round
	spare   *stack
	flush   time.Duration // the longest a packet waits in a batch
	opened  time.Time     // when the open batch got its first packet; zero: it is empty
	limit   uint64        // packets to take; 0: no limit
	taken   uint64        // packets taken, up to limit
	notes   atomic.Pointer[[]byte]
	failed  atomic.Pointer[error] // the first cause; no new packets after it
	counters
}

// source is one receive queue and its frames that are not yet in a batch.
type source struct {
	port *xdp.Port
	id   uint32 // interface number in the capture file
	buf  []umem.Frame
	held int

	inside bool // the last frame received was not the end of its packet
	skip   bool // that packet is beyond the limit
}

// counters has the flow's numbers. The worker is the only writer.
type counters struct {
	packets  atomic.Uint64 // received from the rings
	bytes    atomic.Uint64
	unwanted atomic.Uint64 // packets received beyond the limit
	stalls   atomic.Uint64 // rounds in which the disk could take no more
	refused  atomic.Uint64 // wake-ups the kernel refused
	complete atomic.Bool   // limit packets are taken
	copied   copies
	places   places
}

// poll is one round.
func (n *networkStorage) poll(now time.Time) (more bool) {
	n.note(n.reap())
	n.note(n.settle(now))
	if n.failed.Load() == nil {
		more = n.receive(now)
		n.tick(now)
	}
	n.supply()
	n.kick()
	n.places.publish(&n.track)
	n.book.Publish()
	return more
}

// note keeps the first error.
func (n *networkStorage) note(err error) {
	if err != nil {
		n.failed.CompareAndSwap(nil, &err)
	}
}

// receive takes from every queue, beginning with another one each round.
func (n *networkStorage) receive(now time.Time) (more bool) {
	for i := range n.sources {
		more = n.receiveOne(&n.sources[(n.first+i)%len(n.sources)], now) || more
	}
	n.first++
	return more
}

// receiveOne records what one queue has, and reports whether it may have more.
func (n *networkStorage) receiveOne(s *source, now time.Time) bool {
	if !n.record(s, now) {
		return false
	}
	got := s.port.Recv(s.buf[s.held : s.held+burst])
	if got == 0 {
		return false
	}
	fs := s.buf[s.held : s.held+got]
	n.count(fs)
	if n.limit > 0 {
		s.held += n.admit(s, fs)
	} else {
		s.held += got
	}
	return n.record(s, now) && got == burst
}

// count adds received frames to the counters.
func (n *networkStorage) count(fs []umem.Frame) {
	packets, bytes := uint64(0), uint64(0)
	for i := range fs {
		bytes += uint64(fs[i].Len)
		if !fs[i].Continues() {
			packets++
		}
	}
	add(&n.packets, packets)
	add(&n.bytes, bytes)
}

// record puts the whole packets a source holds into batches. It returns false
// when the disk can take no more now; what is left stays with the source.
func (n *networkStorage) record(s *source, now time.Time) bool {
	whole, done := umem.Whole(s.buf[:s.held]), 0
	for done < whole {
		used := n.layout.add(s.id, s.buf[done:whole])
		done += used
		if used == 0 && !n.submitNow(now) {
			add(&n.stalls, 1)
			break
		}
	}
	s.held = copy(s.buf, s.buf[done:s.held])
	if n.opened.IsZero() && done > 0 {
		n.opened = now
	}
	return done == whole
}

// submitNow sends the open batch. An empty batch that takes nothing means that
// memory is short until the disk gives some back.
func (n *networkStorage) submitNow(now time.Time) bool {
	if n.layout.size() == 0 {
		return false
	}
	ok, err := n.submit(now)
	n.note(err)
	if ok {
		n.opened = time.Time{}
	}
	return ok && err == nil
}

// admit sorts out the packets beyond the limit among frames just received, gives
// those back, and returns how many frames are left.
func (n *networkStorage) admit(s *source, fs []umem.Frame) int {
	keep := 0
	for _, f := range fs {
		if !s.inside {
			s.skip = n.limit > 0 && n.taken == n.limit
			if !s.skip {
				n.taken++
			}
		}
		s.inside = f.Continues()
		if !s.skip {
			fs[keep] = f
			keep++
			continue
		}
		n.spare.push(f)
		if !s.inside {
			add(&n.unwanted, 1)
		}
	}
	n.complete.Store(n.limit > 0 && n.taken == n.limit)
	return keep
}

// tick sends a batch that has waited long enough, and puts statistics into one.
func (n *networkStorage) tick(now time.Time) {
	if blocks := n.notes.Load(); blocks != nil && n.layout.size() == 0 && n.layout.note(*blocks) {
		n.notes.CompareAndSwap(blocks, nil)
		n.opened = now
	}
	if !n.opened.IsZero() && now.Sub(n.opened) >= n.flush {
		n.submitNow(now)
	}
}

// supply gives spare frames to the rings.
func (n *networkStorage) supply() {
	for i := range n.sources {
		free := n.spare.fs[max(0, len(n.spare.fs)-2*burst):]
		used := n.sources[(n.first+i)%len(n.sources)].port.Supply(free)
		n.spare.drop(len(free), used)
	}
}

// kick wakes the devices that asked for it.
func (n *networkStorage) kick() {
	n.note(n.queue.Kick())
	for i := range n.sources {
		if n.sources[i].port.Kick() != nil { // the interface is down or gone; the flow's check says which
			add(&n.refused, 1)
		}
	}
}

func (n *networkStorage) fds(dst []unix.PollFd) []unix.PollFd {
	dst = append(dst, unix.PollFd{Fd: int32(n.queue.FD()), Events: unix.POLLIN})
	for i := range n.sources {
		dst = append(dst, unix.PollFd{Fd: int32(n.sources[i].port.FD()), Events: unix.POLLIN})
	}
	return dst
}

func (n *networkStorage) deadline(now time.Time) time.Time {
	if n.opened.IsZero() {
		return now.Add(longest)
	}
	return n.opened.Add(n.flush)
}
