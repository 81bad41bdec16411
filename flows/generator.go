package flows

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// generator is the end of a flow at which packets are made, so that the other end can be measured alone. They are UDP packets to the
// discard port, of one length, and each says its number. It belongs to the worker's thread; the counters may be read from anywhere.
//
// With a rate, each packet has its time, and is stamped with it. Packets whose turn has come wait as they would in a card's ring; those for which
// that has no room are lost.
type generator struct {
	region *umem.Region
	out    source         // those made and not handed on
	spare  *umem.FreeList // empty frames
	total  int            // frames, wherever they are
	least  int            // and how many it needs
	hands  *umem.Holder
	length uint32 // of a packet
	rate   uint64 // packets a second; 0: as many as are taken
	limit  uint64 // packets to make; 0: no limit

	begun  atomic.Int64 // nanoseconds since 1970; 0: not yet
	ending atomic.Bool

	packets counter.Counter // made
	waiting counter.Counter // their time has come
	late    counter.Counter // lost
}

const (
	// generatorRing is how many packets wait at most.
	generatorRing = 16384
	// generatedAt is where in its frame a packet is: where a card puts those of the slot layout.
	generatedAt = umem.PacketHeadroom + layout.InPlaceHeadroom
	// generatedHead is an Ethernet, an IPv4 and a UDP header.
	generatedHead = 14 + 20 + 8
	// conversations is how many source ports the packets have in turn.
	conversations = 64
)

// generate makes packets and hands them on, and reports whether it could go on at once. open says that more may be made.
func (g *generator) generate(to recorder, open bool, now time.Time) (more bool) {
	n := g.due(now)
	if !to.record(&g.out, now) || !open {
		return false
	}
	if n = min(n, burst, g.spare.Len()); n == 0 {
		return false
	}
	g.make(n, now)
	return to.record(&g.out, now) && n == burst
}

// due is how many packets may be made now. Those that have waited for too long are lost.
func (g *generator) due(now time.Time) int {
	made, begun := g.packets.Load(), g.begun.Load()
	switch {
	case begun == 0 || g.ending.Load() || g.done():
		return 0
	case g.rate > 0:
		return int(g.queue(now.UnixNano()-begun, made))
	case g.limit > 0:
		return int(min(burst, g.limit-made))
	}
	return burst
}

// queue is how many packets wait after so many nanoseconds.
func (g *generator) queue(ns int64, made uint64) uint64 {
	late := g.late.Load()
	turns := g.turns(ns)
	if g.limit > 0 {
		turns = min(turns, g.limit+late)
	}
	n := turns - made - late
	if n > generatorRing {
		g.late.Set(late + n - generatorRing)
		n = generatorRing
	}
	g.waiting.Set(n)
	return n
}

// turns is how many packets' times have come after so many nanoseconds.
func (g *generator) turns(ns int64) uint64 {
	seconds, rest := uint64(max(ns, 0))/1e9, uint64(max(ns, 0))%1e9
	return seconds*g.rate + rest*g.rate/1e9
}

// turn is when the time of the packet of a number has come, in nanoseconds after the first's.
func (g *generator) turn(number uint64) uint64 {
	return number/g.rate*1e9 + number%g.rate*1e9/g.rate
}

// make makes n packets.
func (g *generator) make(n int, now time.Time) {
	made, stamp := g.packets.Load(), uint64(now.UnixNano())
	first, begun := made+g.late.Load(), uint64(g.begun.Load())
	fs := g.out.buf[:n]
	g.spare.Pop(fs)
	for i := range fs {
		start, _ := g.region.Start(fs[i])
		fs[i] = umem.Frame{Addr: start + generatedAt, Len: g.length}
		if g.rate > 0 {
			stamp = begun + g.turn(first+uint64(i))
		}
		side := g.region.Side(fs[i])
		side.Stamp, side.Clock = stamp, umem.SystemClock
		g.write(fs[i], made+uint64(i)+1)
	}
	g.out.held = n
	g.packets.Add(uint64(n))
	if g.rate > 0 {
		g.waiting.Set(g.waiting.Load() - uint64(n))
	}
}

// write writes what differs between packets: their source port and their number. What is around that was written before, but the frame may have been
// another's meanwhile: a record's, or a stage's.
func (g *generator) write(f umem.Frame, number uint64) {
	b := g.region.At(f.Addr, generatedHead+8)
	putGenerated(b, g.length)
	binary.BigEndian.PutUint16(b[34:], 49152+uint16(number%conversations))
	binary.BigEndian.PutUint64(b[generatedHead:], number)
}

// clear zeroes the frames, which have other flows' bytes.
func (g *generator) clear(frames []umem.Frame) {
	for _, f := range frames {
		start, room := g.region.Start(f)
		clear(g.region.At(start, room))
	}
}

// idle reports whether all packets that were made are handed on.
func (g *generator) idle() bool { return g.out.held == 0 }

// away is how many frames are neither free nor about to be handed on.
func (g *generator) away() int { return g.total - g.spare.Len() - g.out.held }

func (g *generator) begin() error {
	g.begun.Store(time.Now().UnixNano())
	return nil
}

func (g *generator) halt() error {
	g.ending.Store(true)
	return nil
}

func (g *generator) done() bool { return g.limit > 0 && g.packets.Load() == g.limit }

func (g *generator) traffic() (packets, bytes uint64) {
	n := g.packets.Load()
	return n, n * uint64(g.length)
}

// deadline is when the next packet's time comes.
func (g *generator) Deadline(now time.Time) time.Time {
	begun := g.begun.Load()
	switch {
	case begun == 0 || g.ending.Load() || g.done():
		return now.Add(worker.MaxWait)
	case g.rate == 0:
		return now.Add(time.Millisecond)
	}
	next := begun + int64(g.turn(g.packets.Load()+g.late.Load()))
	return time.Unix(0, max(next, now.UnixNano()+int64(50*time.Microsecond)))
}

func (g *generator) announce() []any {
	return []any{"packet", g.length, "rate", g.rate, "frames", g.total}
}

// observe adds what was made.
func (g *generator) observe(s *FlowStatus) {
	s.Waiting = g.waiting.Load()
	s.Packets, s.Bytes = g.traffic()
	s.Dropped["not_generated"] = g.late.Load()
	s.Offered = s.Packets + s.Waiting + s.Dropped["not_generated"]
	s.Generated = &GeneratedStatus{Length: g.length, Rate: g.rate}
}

// abandon counts those as lost that waited when the flow ended.
func (g *generator) abandon(s *FlowStatus) {
	s.Dropped["not_generated"] += s.Waiting
	s.Waiting = 0
}

// takeFrames takes the frames of a flow whose packets are made, least and want of them.
func (g *generator) takeFrames(o *opening, least, want int) error {
	frames := make([]umem.Frame, min(want, max(least, o.shared.frames)))
	g.total, g.least, g.hands = o.hands.Take(frames), least, o.hands
	g.spare = umem.NewFreeList(frames[:g.total])
	if g.total < least {
		return fmt.Errorf("the region has %d free frames; generated packets need %d at least: raise region.size", g.total, least)
	}
	g.clear(frames[:g.total])
	return nil
}

// shrink gives back frames that others may have.
func (g *generator) shrink(part sharing) bool {
	return giveBack(g.hands, g.spare, &g.total, max(part.frames, g.least))
}

// openGenerator takes frames: so many that the rest of the flow has at least, and at most.
func (g *generator) openGenerator(o *opening, least, most int) error {
	from := &o.flow.From
	g.region, g.length, g.rate, g.limit = o.region, uint32(from.Generate), uint64(from.Rate), o.shared.limit
	g.out.buf = make([]umem.Frame, burst)
	return g.takeFrames(o, 2*burst+least, 2*burst+most)
}
