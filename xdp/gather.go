package xdp

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/prefetch"
	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/umem"
)

// SendGathered hands one packet to the driver whose parts lie in different places, and reports whether there
// was room for it. The first is a frame of the worker's, which goes to the driver and comes back from Reap once
// the whole packet has been sent. The others are runs of bytes anywhere in the region, each inside one frame:
// those in the frame of the first belong to it, and all others stay their owners', who leave them as they are
// until the first frame is back. Options of message are not looked at.
//
// It needs Config.Gather. A packet that the kernel would not take comes back from Reap with Failed set, as of
// Send; the parts count one by one against Limits.
func (p *Port) SendGathered(message []umem.Frame) bool {
	n := uint32(len(message))
	if p.closed || p.due == nil || n == 0 || p.rings.tx.room(min(uint32(p.limits.Send)-p.sent, n)) < n {
		return false
	}
	head, length := message[:1], p.measure(message)
	p.worker.PassTo(p.held, head)
	if errno := p.refuseParts(message, length); errno != 0 {
		p.fail(head, errno)
		p.sent++
		return true
	}
	p.queue(message)
	p.sent += n
	p.rings.tx.publish(n)
	p.counters.sent.add(1, uint64(n), length)
	return true
}

// Room is how many parts SendGathered, or frames Send, would take now.
func (p *Port) Room() int {
	if p.closed || p.limits.Send == 0 {
		return 0
	}
	return int(p.rings.tx.room(uint32(p.limits.Send) - p.sent))
}

// Ready reports whether Recv would give frames. Unlike the verbs it may be called from any goroutine, but not once Close
// was called. Who asks again and again has the next descriptor brought along, and what it is likely to name: the kernel
// writes both a while before it shows them, and on another processor most of the time.
func (p *Port) Ready() bool {
	rx := &p.rings.rx
	next := rx.consumer.Load()
	fetch(&rx.slots[next&(rx.size-1)])
	prefetch.Begin(&p.region.Data()[p.coming.Load()])
	return rx.producer.Load() != next
}

// notePrefetch notes where the packet behind the last that Recv has given will lie: frames are filled in the order in which they were supplied,
// but behind one that the kernel took and had no use for, and where other ports have packets of the same fill ring.
func (p *Port) notePrefetch() {
	fill := p.rings.fill
	release.Store64(&p.coming, fill.slots[p.rings.rx.next&(fill.size-1)]+p.lands)
}

// queue writes the descriptors of a packet, and notes how many of them its frame waits for.
func (p *Port) queue(message []umem.Frame) {
	last := len(message) - 1
	own := p.number(message[0].Addr)
	for i := range message {
		f := umem.Frame{Addr: message[i].Addr, Len: message[i].Len}
		if i < last {
			f.Options = umem.More
		}
		if p.number(f.Addr) == own {
			p.due[own]++
		}
		p.rings.tx.set(uint32(i), f)
	}
}

// number counts frames from the start of the region, through all extents.
func (p *Port) number(addr uint64) uint64 { return addr >> (bits.TrailingZeros64(p.chunk) & 63) }

func (p *Port) measure(message []umem.Frame) (length uint64) {
	for i := range message {
		length += uint64(message[i].Len)
	}
	return length
}

// refuseParts is refuse of parts that may lie anywhere.
func (p *Port) refuseParts(message []umem.Frame, length uint64) unix.Errno {
	size := p.region.Size()
	for i := range message {
		if message[i].Addr >= size {
			return unix.EFAULT
		}
	}
	return p.refuse(message, length)
}

// expect notes frames that Send has queued, each of which one descriptor gives back.
func (p *Port) expect(message []umem.Frame) {
	for i := range message {
		p.due[p.number(message[i].Addr)]++
	}
}

// reapGathered takes descriptors that the kernel is done with, in whatever order it is, and gives the frames that wait for no
// other.
func (p *Port) reapGathered(dst []umem.Frame) (given int) {
	waiting, done := p.rings.completion.waiting(maxBatch), uint32(0)
	for ; done < waiting && given < len(dst); done++ {
		addr := p.rings.completion.at(done)
		if p.last(addr) {
			dst[given] = umem.Frame{Addr: addr}
			given++
		}
	}
	if done > 0 {
		p.completed(done)
	}
	return given
}

// last says whether a frame of ours waited for the descriptor at addr, and for none besides.
func (p *Port) last(addr uint64) bool {
	due := &p.due[p.number(addr)]
	if *due == 0 {
		return false
	}
	*due--
	return *due == 0
}

// completed takes n descriptors out of the completion ring.
func (p *Port) completed(n uint32) {
	p.rings.completion.release(n)
	p.counters.completed.add(uint64(n))
	p.sent -= n
}
