package stream

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// Result is the outcome of a message.
type Result struct {
	Token        uint64 // as passed to Send
	Acknowledged bool   // false: it was abandoned
	// Position is the position in the receiver's log of the last message that the same
	// acknowledgement covers; 0 without a log.
	Position uint64
}

// sendQueue holds the messages of a sender in slots: messages that wait, in order; messages in
// flight, which have consecutive numbers; and results that the caller has not taken. It does not
// know queue pairs, and belongs to one thread.
//
// Numbers begin at 1 and never start again. The sequence that a peer sees is the number minus the
// number before its session.
type sendQueue struct {
	slots   []outgoing
	free    []uint32
	waiting slotRing // never posted, without a number
	flight  []uint32 // by number
	mask    uint64   // of flight
	first   uint64   // lowest number in flight, or the next number
	last    uint64   // highest number assigned
	results []Result // a ring
	told    uint64   // results taken
	made    uint64   // results made
}

// outgoing is a message.
type outgoing struct {
	token    uint64
	stamp    uint64 // of the sender's clock
	arrived  uint64 // nanoseconds since 1970
	since    int64  // time of Send in nanoseconds since the sender was opened
	length   uint32 // of the payload
	checksum uint32
	origin   protocol.Origin // of a relayed message
	elements uint32          // scatter/gather elements, including the header's

	// Of a message that goes over one of several links only: see spread.
	reads uint8 // links whose device may still read it
	over  uint8 // the path over which it was posted last, from 1 on; 0: none, or that one has failed
	again bool  // it waits to be posted again
}

func newOutbox(depth int) sendQueue {
	size := powerOfTwo(depth)
	b := sendQueue{slots: make([]outgoing, depth), free: make([]uint32, 0, depth), waiting: slotRing{items: make([]uint32, size)},
		flight: make([]uint32, size), mask: uint64(size - 1), first: 1, results: make([]Result, size)}
	for i := depth - 1; i >= 0; i-- {
		b.free = append(b.free, uint32(i))
	}
	return b
}

// powerOfTwo returns the smallest power of two that is at least n.
func powerOfTwo(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

// room reports whether another message fits. A result occupies its slot until the caller takes it.
func (b *sendQueue) room() bool { return len(b.free) > int(b.made-b.told) }

// push adds a waiting message and returns its slot. There must be room.
func (b *sendQueue) push(m outgoing) uint32 {
	slot := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.slots[slot] = m
	b.waiting.push(slot)
	return slot
}

// number gives the first waiting message the next number, and reports whether there was one.
func (b *sendQueue) number() bool {
	slot, ok := b.waiting.pop()
	if ok {
		b.last++
		b.flight[b.last&b.mask] = slot
	}
	return ok
}

// at returns the slot of a number in flight.
func (b *sendQueue) at(number uint64) uint32 { return b.flight[number&b.mask] }

// inFlight returns how many messages have a number and no result yet.
func (b *sendQueue) inFlight() int { return int(b.last + 1 - b.first) }

// retire ends the first message in flight.
func (b *sendQueue) retire(acknowledged bool, position uint64) {
	slot := b.at(b.first)
	b.first++
	b.end(slot, acknowledged, position)
}

func (b *sendQueue) end(slot uint32, acknowledged bool, position uint64) {
	b.free = append(b.free, slot)
	b.results[b.made&b.mask] = Result{Token: b.slots[slot].token, Acknowledged: acknowledged, Position: position}
	b.made++
}

// oldest returns the token of the message that drop would remove.
func (b *sendQueue) oldest() (token uint64, ok bool) {
	if b.waiting.len() == 0 {
		return 0, false
	}
	return b.slots[b.waiting.items[b.waiting.head&uint32(len(b.waiting.items)-1)]].token, true
}

// drop removes the first waiting message.
func (b *sendQueue) drop() (token uint64, ok bool) {
	slot, ok := b.waiting.pop()
	if !ok {
		return 0, false
	}
	b.free = append(b.free, slot)
	return b.slots[slot].token, true
}

// abandon ends all messages. Their numbers are not used again.
func (b *sendQueue) abandon() (n int) {
	for ; b.first <= b.last; n++ {
		b.retire(false, 0)
	}
	for slot, ok := b.waiting.pop(); ok; slot, ok = b.waiting.pop() {
		b.end(slot, false, 0)
		n++
	}
	return n
}

// take moves results to dst. Those of acknowledged messages are in order.
func (b *sendQueue) take(dst []Result) int {
	n := min(len(dst), int(b.made-b.told))
	for i := range dst[:n] {
		dst[i] = b.results[b.told&b.mask]
		b.told++
	}
	return n
}

// slotRing is a queue of slots.
type slotRing struct {
	items      []uint32
	head, tail uint32
}

func (r *slotRing) len() int { return int(r.tail - r.head) }

func (r *slotRing) push(slot uint32) {
	r.items[r.tail&uint32(len(r.items)-1)] = slot
	r.tail++
}

func (r *slotRing) pop() (slot uint32, ok bool) {
	if r.head == r.tail {
		return 0, false
	}
	slot = r.items[r.head&uint32(len(r.items)-1)]
	r.head++
	return slot, true
}

// frameRing is a queue of frames for one thread. The caller of push must know that there is room.
type frameRing struct {
	items      []umem.Frame
	head, tail uint32
}

// newFrameRing makes a ring with room for at least n frames.
func newFrameRing(n int) frameRing {
	size := 1
	for size < n {
		size *= 2
	}
	return frameRing{items: make([]umem.Frame, size)}
}

func (q *frameRing) len() int { return int(q.tail - q.head) }

func (q *frameRing) at(n uint32) *umem.Frame { return &q.items[n&uint32(len(q.items)-1)] }

func (q *frameRing) push(f umem.Frame) {
	*q.at(q.tail) = f
	q.tail++
}

// pop moves frames from the front to dst and returns their number.
func (q *frameRing) pop(dst []umem.Frame) int {
	n := min(len(dst), q.len())
	for i := range dst[:n] {
		dst[i] = *q.at(q.head)
		q.head++
	}
	return n
}

// front returns at most most frames from the front that are contiguous. skip removes them.
func (q *frameRing) front(most int) []umem.Frame {
	at := int(q.head & uint32(len(q.items)-1))
	n := min(q.len(), len(q.items)-at, most)
	return q.items[at : at+n]
}

func (q *frameRing) skip(n int) { q.head += uint32(n) }

// Method is how messages reach the receiver.
type Method string

const (
	AnyMethod Method = "any"   // the receiver decides; the default
	BySend    Method = "send"  // SEND, into receives that the receiver has posted
	ByWrite   Method = "write" // WRITE with immediate, into memory that the receiver grants
)
