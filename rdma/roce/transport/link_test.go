package transport

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// fault is what a link does to a packet.
type fault int

const (
	loss      fault = iota
	duplicate       // the packet arrives twice, the second time up to 50 µs later
	reorder         // the packet arrives up to 20 µs later than it should
	corrupt         // one bit is inverted
	truncate        // the packet is cut off somewhere
	ghost           // an ACK or answer that the peer never sent arrives before the packet
	kinds
)

var faultNames = [kinds]string{"lost", "duplicated", "reordered", "corrupted", "truncated", "ghosts"}

// faults holds the probability of each fault, independent of the others: 0 to 1.
type faults [kinds]float64

// bytesOnWire is a frame that is on its way.
type bytesOnWire struct {
	at    Time
	order int
	to    int
	frame []byte
}

// link carries frames between two ends, under a seed.
type link struct {
	rnd    *rand.Rand
	delay  time.Duration
	faults faults
	did    [kinds]uint64
	onWay  flight
	order  int
	spare  [][]byte
	// each sees every packet before the link does anything to it, and reports whether it is to be lost.
	each func(from int, h *wire.Header) (lose bool)
}

type flight []bytesOnWire

func (f flight) Len() int { return len(f) }
func (f flight) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].order < f[j].order
}
func (f flight) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flight) Push(x any)   { *f = append(*f, x.(bytesOnWire)) }
func (f *flight) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

func newLink(seed uint64) *link {
	return &link{rnd: rand.New(rand.NewPCG(seed, 1)), delay: 2 * time.Microsecond}
}

// happens draws whether a fault happens, and counts it.
func (l *link) happens(f fault) bool {
	p := l.faults[f]
	if p == 0 || l.rnd.Float64() >= p {
		return false
	}
	l.did[f]++
	return true
}

// carry puts a copy of a frame on its way. The frame stays the caller's.
func (l *link) carry(now Time, to int, frame []byte) {
	if l.happens(loss) {
		return
	}
	l.put(now, to, frame)
	if l.happens(duplicate) {
		l.put(now.After(time.Duration(l.rnd.IntN(50))*time.Microsecond), to, frame)
	}
}

func (l *link) put(now Time, to int, frame []byte) {
	own := append(l.take(), frame...)
	if l.happens(corrupt) {
		own[14+l.rnd.IntN(len(own)-14)] ^= 1 << l.rnd.IntN(8)
	}
	if l.happens(truncate) {
		own = own[:l.rnd.IntN(len(own))]
	}
	at := now.After(l.delay)
	if l.happens(reorder) {
		at = at.After(time.Duration(l.rnd.IntN(20)) * time.Microsecond)
	}
	l.order++
	heap.Push(&l.onWay, bytesOnWire{at, l.order, to, own})
}

func (l *link) take() []byte {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b[:0]
	}
	return make([]byte, 0, 4300)
}

// due takes the next frame that has arrived at one end by now.
func (l *link) due(now Time) (bytesOnWire, bool) {
	if len(l.onWay) == 0 || l.onWay[0].at > now {
		return bytesOnWire{}, false
	}
	return heap.Pop(&l.onWay).(bytesOnWire), true
}

func (l *link) done(b bytesOnWire) { l.spare = append(l.spare, b.frame) }
