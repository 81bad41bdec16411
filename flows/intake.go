package flows

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/mirror"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// burst is the most frames a verb moves at once.
const burst = 64

// intake is the network end of a flow: the queues of one interface or several, and the
// frames that circulate through them. It belongs to the worker's thread; the
// counters may be read from anywhere.
type intake struct {
	net      interfaces
	mirror   *mirror.Mirror // of the interface, to net; nil: packets are taken from the host
	sources  []source
	steering steering
	ring     int // entries of each ring of a source
	first    int // the source that is served first in this round
	spare    *umem.FreeList
	total    int          // frames, wherever they are
	least    int          // how many of them it needs
	hands    *umem.Holder // the worker's
	inRings  int          // of those
	limit    uint64       // packets to take; 0: no limit
	taken    uint64       // packets taken, up to limit

	packets  counter.Counter // received from the rings
	bytes    counter.Counter
	unwanted counter.Counter // packets received beyond the limit
	refused  counter.Counter // wake-ups the kernel refused
	complete atomic.Bool     // limit packets are taken

	seen, since uint64 // packets, and in which round they came, as the flow ends
}

// source is one receive queue and its frames that are not yet in a batch.
type source struct {
	port *xdp.Port
	of   *xdp.Interface
	id   uint32 // interface number in the capture file; with a card's clock, of two
	buf  []umem.Frame
	held int

	ready  int  // of the frames held, those that stages changed already
	inside bool // the last frame received was not the end of its packet
	skip   bool // that packet is beyond the limit
}

// recorder takes the whole packets a source holds. It returns false when it can
// take no more now.
type recorder interface {
	record(s *source, now time.Time) bool
}

// receive takes from every queue, beginning with another one each round, and
// reports whether more is waiting. Where it is not open, what was taken before goes on, and nothing more is taken.
func (n *intake) receive(to recorder, open bool, now time.Time) (more bool) {
	for i := range n.sources {
		more = n.receiveOne(&n.sources[(n.first+i)%len(n.sources)], to, open, now) || more
	}
	n.first++
	return more
}

func (n *intake) receiveOne(s *source, to recorder, open bool, now time.Time) bool {
	if !to.record(s, now) || !open {
		return false
	}
	got := s.port.Recv(s.buf[s.held : s.held+burst])
	if got == 0 {
		return false
	}
	n.inRings -= got
	fs := s.buf[s.held : s.held+got]
	n.count(fs)
	if n.limit > 0 {
		s.held += n.admit(s, fs)
	} else {
		s.held += got
	}
	return to.record(s, now) && got == burst
}

// count adds received frames to the counters.
func (n *intake) count(fs []umem.Frame) {
	packets, bytes := uint64(0), uint64(0)
	for i := range fs {
		bytes += uint64(fs[i].Len)
		if !fs[i].Continues() {
			packets++
		}
	}
	n.packets.Add(packets)
	n.bytes.Add(bytes)
}

// admit sorts out the packets beyond the limit among frames just received, gives
// those back, and returns how many frames are left.
func (n *intake) admit(s *source, fs []umem.Frame) int {
	keep := 0
	for _, f := range fs {
		if !s.inside {
			s.skip = n.taken == n.limit
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
		n.spare.Push(f)
		if !s.inside {
			n.unwanted.Add(1)
		}
	}
	n.complete.Store(n.taken == n.limit)
	return keep
}

// supply gives spare frames to the rings.
func (n *intake) supply() {
	for i := range n.sources {
		free := n.spare.Top(2 * burst)
		used := n.sources[(n.first+i)%len(n.sources)].port.Supply(free)
		n.spare.Drop(len(free), used)
		n.inRings += used
	}
}

// away is how many frames are neither free, nor with a queue, nor about to be handed on.
func (n *intake) away() int {
	here := n.spare.Len() + n.inRings
	for i := range n.sources {
		here += n.sources[i].held
	}
	return n.total - here
}

// kick wakes the queues that asked for it. What the kernel refuses is counted;
// the flow's check says whether the interface is down or gone.
func (n *intake) kick() {
	for i := range n.sources {
		if n.sources[i].port.Kick() != nil {
			n.refused.Add(1)
		}
	}
}

func (n *intake) FDs(dst []unix.PollFd) []unix.PollFd {
	for i := range n.sources {
		dst = append(dst, unix.PollFd{Fd: int32(n.sources[i].port.FD()), Events: unix.POLLIN})
	}
	return dst
}

// idle reports whether no source holds packets back.
func (n *intake) idle() bool {
	for i := range n.sources {
		if n.sources[i].held > 0 {
			return false
		}
	}
	return true
}

// quiet reports whether no more packets come out of the rings: a whole round of the
// worker, behind the one that may be under way, has brought none.
func (n *intake) quiet(rounds uint64) bool {
	if now := n.packets.Load(); now != n.seen || n.since == 0 || !n.idle() {
		n.seen, n.since = now, rounds
	}
	return rounds >= n.since+2
}

func (n *intake) begin() error {
	err := n.net.Start()
	if err == nil && n.mirror != nil {
		err = n.mirror.Start()
	}
	return err
}

// halt has packets pass to the kernel again. An interface that is gone brings none.
func (n *intake) halt() error {
	if err := n.haltMirror(); err != nil {
		return err
	}
	if err := n.net.Stop(); err != nil && !errors.Is(err, xdp.ErrInterfaceGone) {
		return err
	}
	return nil
}

func (n *intake) done() bool { return n.complete.Load() }

func (n *intake) traffic() (packets, bytes uint64) { return n.packets.Load(), n.bytes.Load() }
