package afxdp

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/mirror"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

var _ pipeline.Source = (*Source)(nil)

// Source receives packets from the queues of one or more interfaces. Its frames circulate: free,
// in the rings, in a batch, with the sink, and free again.
type Source struct {
	from     config.From
	net      interfaces
	why      string         // of this engine, if the flow may choose
	mirror   *mirror.Mirror // copies another interface's packets; nil: no mirror
	queues   []queue
	steering steering
	ring     int // entries of each ring
	first    int // the first queue of this round
	free     umem.FreeList
	total    int          // frames, wherever they are
	least    int          // how many of them the source needs
	fixed    bool         // the frames are of a program's memory, and no part of the flow's quota
	holder   *umem.Holder // of the worker's frames
	inRings  int          // frames in fill rings and receive rings
	limit    uint64       // packets to receive; 0: no limit
	accepted uint64       // packets received, up to limit
	started  time.Time

	packets  counter.Counter // received from the rings
	bytes    counter.Counter
	beyond   counter.Counter // packets received beyond the limit
	refused  counter.Counter // wake-ups that the kernel refused
	complete atomic.Bool     // limit packets are received

	lastPackets, lastRound uint64 // while draining: packets received, and the round of the last one
}

// queue is one receive queue and its batch.
type queue struct {
	port  *xdp.Port
	of    *xdp.Interface
	batch pipeline.Batch

	inside bool // the last frame received was not the end of its packet
	skip   bool // that packet is beyond the limit
}

// Free returns the list of free frames. The sink pushes frames to it on the worker's thread.
func (s *Source) Free() *umem.FreeList { return &s.free }

// Chosen sets the reason for this engine, for a flow that may choose. It must be called before Begin.
func (s *Source) Chosen(why string) { s.why = why }

// Node is the NUMA node of the first interface.
func (s *Source) Node() int { return s.net[0].Node() }

// Receive implements pipeline.Source. Each round begins with the next queue.
func (s *Source) Receive(sink pipeline.Output, open bool, now time.Time) (more bool) {
	for i := range s.queues {
		more = s.receiveQueue(&s.queues[(s.first+i)%len(s.queues)], sink, open, now) || more
	}
	s.first++
	return more
}

func (s *Source) receiveQueue(q *queue, sink pipeline.Output, open bool, now time.Time) bool {
	b := &q.batch
	if !sink.Write(b, now) || !open {
		return false
	}
	got := q.port.Recv(b.Frames[b.Len : b.Len+pipeline.Burst])
	if got == 0 {
		return false
	}
	s.inRings -= got
	fs := b.Frames[b.Len : b.Len+got]
	s.count(fs)
	if s.limit > 0 {
		b.Len += s.admit(q, fs)
	} else {
		b.Len += got
	}
	return sink.Write(b, now) && got == pipeline.Burst
}

// count adds received frames to the counters.
func (s *Source) count(fs []umem.Frame) {
	packets, bytes := uint64(0), uint64(0)
	for i := range fs {
		bytes += uint64(fs[i].Len)
		if !fs[i].Continues() {
			packets++
		}
	}
	s.packets.Add(packets)
	s.bytes.Add(bytes)
}

// admit frees packets beyond the limit that were just received, and returns how many frames are
// left.
func (s *Source) admit(q *queue, fs []umem.Frame) int {
	keep := 0
	for _, f := range fs {
		if !q.inside {
			q.skip = s.accepted == s.limit
			if !q.skip {
				s.accepted++
			}
		}
		q.inside = f.Continues()
		if !q.skip {
			fs[keep] = f
			keep++
			continue
		}
		s.free.Push(f)
		if !q.inside {
			s.beyond.Add(1)
		}
	}
	s.complete.Store(s.accepted == s.limit)
	return keep
}

// Supply implements pipeline.Source: it gives free frames to the fill rings.
func (s *Source) Supply() {
	for i := range s.queues {
		free := s.free.Top(2 * pipeline.Burst)
		used := s.queues[(s.first+i)%len(s.queues)].port.Supply(free)
		s.free.Drop(len(free), used)
		s.inRings += used
	}
}

func (s *Source) InFlight() int {
	here := s.free.Len() + s.inRings
	for i := range s.queues {
		here += s.queues[i].batch.Len
	}
	return s.total - here
}

// Kick implements pipeline.Source. It counts wake-ups that the kernel refuses. Check reports
// whether the interface is down or gone.
func (s *Source) Kick(time.Time) {
	for i := range s.queues {
		if s.queues[i].port.Kick() != nil {
			s.refused.Add(1)
		}
	}
}

func (s *Source) FDs(dst []unix.PollFd, blocked bool) []unix.PollFd {
	if blocked {
		return dst // the sockets stay readable
	}
	for i := range s.queues {
		dst = append(dst, unix.PollFd{Fd: int32(s.queues[i].port.FD()), Events: unix.POLLIN})
	}
	return dst
}

// idle reports whether all batches are empty.
func (s *Source) idle() bool {
	for i := range s.queues {
		if s.queues[i].batch.Len > 0 {
			return false
		}
	}
	return true
}

// Drained implements pipeline.Source. It returns true when a whole round has received nothing. The
// round under way does not count.
func (s *Source) Drained(rounds uint64) bool {
	if now := s.packets.Load(); now != s.lastPackets || s.lastRound == 0 || !s.idle() {
		s.lastPackets, s.lastRound = now, rounds
	}
	return rounds >= s.lastRound+2
}

// Begin implements pipeline.Source. The interfaces begin to deliver packets to the flow.
func (s *Source) Begin() error {
	err := s.net.Start()
	if err == nil && s.mirror != nil {
		err = s.mirror.Start()
	}
	return err
}

// StopReceiving implements pipeline.Source. Packets pass to the kernel again. If an interface is
// gone, there is nothing to stop.
func (s *Source) StopReceiving(bool) error {
	if err := s.stopMirror(); err != nil {
		return err
	}
	if err := s.net.Stop(); err != nil && !errors.Is(err, xdp.ErrInterfaceGone) {
		return err
	}
	return nil
}

func (s *Source) Done() bool { return s.complete.Load() }

func (s *Source) Traffic() (packets, bytes uint64) { return s.packets.Load(), s.bytes.Load() }

func (s *Source) Accepted() uint64 { return s.packets.Load() - s.beyond.Load() }

func (s *Source) Check(time.Time) (waits, ends error) {
	err := s.checkInterfaces()
	if errors.Is(err, xdp.ErrInterfaceDown) {
		return err, nil
	}
	return nil, err
}

func (s *Source) Shrink(q pipeline.Quota) (over bool) {
	if s.fixed {
		return false
	}
	return pipeline.ShrinkFrames(s.holder, &s.free, &s.total, max(q.Frames, s.least))
}
