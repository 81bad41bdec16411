package generator

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Source = (*Source)(nil)

// Source generates packets, to measure a sink alone: UDP packets of one length to the discard port,
// each with its number.
//
// With a rate, each packet has a due time as its timestamp: the first one is due one interval after the
// source begins. Due packets wait as in a card's ring.
// Packets that become due while the ring is full are lost.
type Source struct {
	region *umem.Region
	batch  pipeline.Batch
	free   umem.FreeList
	total  int // frames, wherever they are
	least  int // how many of them the source needs
	holder *umem.Holder
	length uint32 // of a packet
	rate   uint64 // packets per second; 0: as many as the sink takes
	limit  uint64 // packets to make; 0: no limit

	begun   atomic.Int64 // nanoseconds since 1970; 0: not yet
	stopped atomic.Bool

	packets counter.Counter // made
	waiting counter.Counter // due and not generated yet
	late    counter.Counter // lost
}

const (
	// ringSize is the largest number of packets that wait.
	ringSize = 16384
	// packetOffset is the offset of a packet in its frame. It is the offset at which a card puts
	// packets that are written in place.
	packetOffset = umem.PacketHeadroom + layout.InPlaceHeadroom
	// headerLen is the length of an Ethernet, an IPv4 and a UDP header.
	headerLen = 14 + 20 + 8
	// ports is the number of source ports, which the packets use in rotation.
	ports = 64
)

// New returns a source. It has no frames until Fill.
func New(e *pipeline.Env) *Source {
	from := &e.Flow.From
	return &Source{
		region: e.Region, length: uint32(from.Generate), rate: uint64(from.Rate), limit: e.Shared.Limit, holder: e.Holder,
		batch: pipeline.Batch{Frames: make([]umem.Frame, pipeline.Burst)},
	}
}

// Fill takes the flow's quota of frames. The rest of the flow needs at least least of them, and can
// use at most most.
func (s *Source) Fill(e *pipeline.Env, least, most int) error {
	least, most = 2*pipeline.Burst+least, 2*pipeline.Burst+most
	frames := make([]umem.Frame, min(most, max(least, e.Shared.Quota.Frames)))
	s.total, s.least = e.Holder.Take(frames), least
	frames = frames[:s.total]
	s.free.Push(frames...)
	if s.total < least {
		return fmt.Errorf("the region has %d free frames; generated packets need %d at least: raise region.size", s.total, least)
	}
	for _, f := range frames { // they contain bytes of other flows
		start, room := s.region.Start(f)
		clear(s.region.At(start, room))
	}
	return nil
}

// Free returns the list of free frames. The sink pushes frames to it on the worker's thread.
func (s *Source) Free() *umem.FreeList { return &s.free }

// Receive implements pipeline.Source. It generates packets.
func (s *Source) Receive(sink pipeline.Output, open bool, now time.Time) (more bool) {
	n := s.due(now)
	if !sink.Write(&s.batch, now) || !open {
		return false
	}
	if n = min(n, pipeline.Burst, s.free.Len()); n == 0 {
		return false
	}
	s.make(n, now)
	return sink.Write(&s.batch, now) && n == pipeline.Burst
}

// due returns the number of packets that may be generated now.
func (s *Source) due(now time.Time) int {
	made, begun := s.packets.Load(), s.begun.Load()
	switch {
	case begun == 0 || s.stopped.Load() || s.Done():
		return 0
	case s.rate > 0:
		return int(s.queue(s.elapsed(now, made), made))
	case s.limit > 0:
		return int(min(pipeline.Burst, s.limit-made))
	}
	return pipeline.Burst
}

// elapsed returns for how many nanoseconds packets are due. If the clock was set back, as many as were due before, and
// the times of the next packets follow the clock.
func (s *Source) elapsed(now time.Time, made uint64) int64 {
	ns, due := now.UnixNano()-s.begun.Load(), made+s.late.Load()
	if ns >= 0 && s.timesPassed(ns) >= due {
		return ns
	}
	ns = 0
	if due > 0 {
		ns = int64(s.timeOf(due - 1))
	}
	s.begun.Store(now.UnixNano() - ns)
	return ns
}

// queue returns the number of packets that wait after ns nanoseconds. It counts packets without
// space in the ring as lost.
func (s *Source) queue(ns int64, made uint64) uint64 {
	late := s.late.Load()
	passed := s.timesPassed(ns)
	if s.limit > 0 {
		passed = min(passed, s.limit+late)
	}
	n := passed - made - late
	if n > ringSize {
		s.late.Set(late + n - ringSize)
		n = ringSize
	}
	s.waiting.Set(n)
	return n
}

// timesPassed returns the number of packets that are due after ns nanoseconds.
func (s *Source) timesPassed(ns int64) uint64 {
	seconds, rest := uint64(max(ns, 0))/1e9, uint64(max(ns, 0))%1e9
	return seconds*s.rate + rest*s.rate/1e9
}

// timeOf returns the due time of a packet, counted from 0, in nanoseconds after the source began. It is
// the first one for which timesPassed counts the packet: the end of the packet's interval.
func (s *Source) timeOf(number uint64) uint64 {
	passed := number + 1
	return passed/s.rate*1e9 + (passed%s.rate*1e9+s.rate-1)/s.rate
}

// make generates n packets.
func (s *Source) make(n int, now time.Time) {
	made, stamp := s.packets.Load(), uint64(now.UnixNano())
	first, begun := made+s.late.Load(), uint64(s.begun.Load())
	fs := s.batch.Frames[:n]
	s.free.Pop(fs)
	for i := range fs {
		start, _ := s.region.Start(fs[i])
		fs[i] = umem.Frame{Addr: start + packetOffset, Len: s.length}
		if s.rate > 0 {
			stamp = begun + s.timeOf(first+uint64(i))
		}
		side := s.region.Side(fs[i])
		side.Stamp, side.Clock = stamp, umem.SystemClock
		s.write(fs[i], made+uint64(i)+1)
	}
	s.batch.Len = n
	s.packets.Add(uint64(n))
	if s.rate > 0 {
		s.waiting.Set(s.waiting.Load() - uint64(n))
	}
}

// write writes a packet's headers and number. A record or a stage may have overwritten them since
// the frame's last use.
func (s *Source) write(f umem.Frame, number uint64) {
	b := s.region.At(f.Addr, headerLen+8)
	putHeaders(b, s.length)
	binary.BigEndian.PutUint16(b[34:], 49152+uint16(number%ports))
	binary.BigEndian.PutUint64(b[headerLen:], number)
}

func (s *Source) InFlight() int { return s.total - s.free.Len() - s.batch.Len }

func (s *Source) Drained(uint64) bool { return s.batch.Len == 0 }

func (s *Source) FDs(dst []unix.PollFd, _ bool) []unix.PollFd { return dst }

// Deadline implements pipeline.Source. It is the due time of the next packet.
func (s *Source) Deadline(now time.Time) time.Time {
	begun := s.begun.Load()
	switch {
	case begun == 0 || s.stopped.Load() || s.Done():
		return now.Add(worker.MaxWait)
	case s.rate == 0:
		return now.Add(time.Millisecond)
	}
	next := begun + int64(s.timeOf(s.packets.Load()+s.late.Load()))
	return time.Unix(0, max(next, now.UnixNano()+int64(50*time.Microsecond)))
}

func (s *Source) Begin() error {
	s.begun.Store(time.Now().UnixNano())
	return nil
}

func (s *Source) StopReceiving(bool) error {
	s.stopped.Store(true)
	return nil
}

func (s *Source) Done() bool { return s.limit > 0 && s.packets.Load() == s.limit }

func (s *Source) Traffic() (packets, bytes uint64) {
	n := s.packets.Load()
	return n, n * uint64(s.length)
}

func (s *Source) Announce() []any {
	return []any{"packet", s.length, "rate", s.rate, "frames", s.total}
}

func (s *Source) Observe(to *status.Flow) error {
	to.Waiting = s.waiting.Load()
	to.Packets, to.Bytes = s.Traffic()
	to.Dropped["not_generated"] = s.late.Load()
	to.Offered = to.Packets + to.Waiting + to.Dropped["not_generated"]
	to.Generated = &status.Generated{Length: s.length, Rate: s.rate}
	return nil
}

// CountLost implements pipeline.Source. Packets that still waited when the flow ended are lost.
func (s *Source) CountLost(to *status.Flow) {
	to.Dropped["not_generated"] += to.Waiting
	to.Waiting = 0
}

func (s *Source) Shrink(q pipeline.Quota) (over bool) {
	return pipeline.ShrinkFrames(s.holder, &s.free, &s.total, max(q.Frames, s.least))
}
