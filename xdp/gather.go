package xdp

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/prefetch"
	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/umem"
)

// SendGathered sends one packet whose parts are in different places, and reports whether there was room for
// it. The first part is a frame that the worker holds. The driver gets it, and Reap returns it once the
// whole packet has been sent. The other parts are runs of bytes anywhere in the region, each inside one
// frame. Parts in the first frame belong to it. All others keep their owners, who must not change them
// until Reap returns the first frame. Options of message are ignored.
//
// It needs Config.Gather. A packet that the kernel would not accept returns from Reap with Failed
// set, as with Send. The parts count one by one against Limits.
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

// Room returns how many parts SendGathered, or frames Send, would take now.
func (p *Port) Room() int {
	if p.closed || p.limits.Send == 0 {
		return 0
	}
	return int(p.rings.tx.room(uint32(p.limits.Send) - p.sent))
}

// Ready reports whether Recv would return frames. Unlike the verbs it may be called from any
// goroutine, but not after Close. Repeated calls prefetch the next descriptor and the packet that
// it probably names: the kernel writes both some time before it publishes them, and usually on
// another processor.
func (p *Port) Ready() bool {
	rx := &p.rings.rx
	next := rx.consumer.Load()
	fetch(&rx.slots[next&(rx.size-1)])
	prefetch.Begin(&p.region.Data()[p.coming.Load()])
	return rx.producer.Load() != next
}

// notePrefetch records the probable place of the packet after the last one that Recv has returned.
// Frames are filled in the order in which they were supplied. The guess is wrong after a frame that
// the kernel took and did not use, and if other ports share the fill ring.
func (p *Port) notePrefetch() {
	fill := p.rings.fill
	release.Store64(&p.coming, fill.slots[p.rings.rx.next&(fill.size-1)]+p.rxOffset)
}

// queue writes the descriptors of a packet, and records how many of them its frame waits for.
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

// refuseParts is refuse for parts that may be anywhere.
func (p *Port) refuseParts(message []umem.Frame, length uint64) unix.Errno {
	size := p.region.Size()
	for i := range message {
		if message[i].Addr >= size {
			return unix.EFAULT
		}
	}
	return p.refuse(message, length)
}

// expect records frames that Send has queued. One descriptor returns each of them.
func (p *Port) expect(message []umem.Frame) {
	for i := range message {
		p.due[p.number(message[i].Addr)]++
	}
}

// reapGathered consumes completed descriptors, in whatever order they are. It returns the frames
// that wait for no other descriptor.
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

// last reports whether a frame waited for the descriptor at addr and for no other.
func (p *Port) last(addr uint64) bool {
	due := &p.due[p.number(addr)]
	if *due == 0 {
		return false
	}
	*due--
	return *due == 0
}

// completed consumes n descriptors of the completion ring.
func (p *Port) completed(n uint32) {
	p.rings.completion.release(n)
	p.counters.completed.Add(uint64(n))
	p.sent -= n
}
