package stream

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// Result is what became of a message that was sent.
type Result struct {
	Token        uint64 // as it was given to Send
	Acknowledged bool   // false: it was given up
	// Position is what the acknowledgement that covered the message said: where the log has the last message covered by it; 0 without a log.
	Position uint64
}

// sendQueue has the messages of a sender, in slots: those that wait, in the order they came; those in flight, which have a number each,
// without gaps; and what became of others, until it is asked for. It knows no queue pairs, and belongs to one thread.
//
// Numbers begin at 1 and go up for good. What a peer calls a sequence is a number less what was in front of its session.
type sendQueue struct {
	slots   []outgoing
	free    []uint32
	waiting slotRing // never posted, and without a number
	flight  []uint32 // by number
	mask    uint64   // of flight
	first   uint64   // lowest number in flight, or the next there will be
	last    uint64   // highest number given
	results []Result // a ring
	told    uint64   // results taken
	made    uint64   // results made
}

// outgoing is a message.
type outgoing struct {
	token    uint64
	stamp    uint64 // of the sender's clock
	arrived  uint64 // nanoseconds since 1970
	since    int64  // when it was sent: nanoseconds since the sender was opened
	length   uint32 // of the payload
	checksum uint32
	origin   protocol.Origin // of a message that is relayed
	elements uint32          // scatter/gather elements, the header's among them
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

// powerOfTwo is the smallest that is n or more.
func powerOfTwo(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

// room reports whether another message fits. What became of others takes room until it was asked for.
func (b *sendQueue) room() bool { return len(b.free) > int(b.made-b.told) }

// push has a message wait, and returns its slot. There is room.
func (b *sendQueue) push(m outgoing) uint32 {
	slot := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.slots[slot] = m
	b.waiting.push(slot)
	return slot
}

// number gives the first that waits the next number, and reports whether one waited.
func (b *sendQueue) number() bool {
	slot, ok := b.waiting.pop()
	if ok {
		b.last++
		b.flight[b.last&b.mask] = slot
	}
	return ok
}

// at is the slot of a number in flight.
func (b *sendQueue) at(number uint64) uint32 { return b.flight[number&b.mask] }

// inFlight is how many messages have a number and are not done with.
func (b *sendQueue) inFlight() int { return int(b.last + 1 - b.first) }

// retire ends the first in flight.
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

// oldest is the token of what drop takes out.
func (b *sendQueue) oldest() (token uint64, ok bool) {
	if b.waiting.len() == 0 {
		return 0, false
	}
	return b.slots[b.waiting.items[b.waiting.head&uint32(len(b.waiting.items)-1)]].token, true
}

// drop takes out the first that waits.
func (b *sendQueue) drop() (token uint64, ok bool) {
	slot, ok := b.waiting.pop()
	if !ok {
		return 0, false
	}
	b.free = append(b.free, slot)
	return b.slots[slot].token, true
}

// abandon ends everything. Numbers that were given are not given again.
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

// take fills dst with what became of messages: of those that were acknowledged in their order.
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

// frameRing is a queue of frames, of one thread. Whoever pushes knows that there is room.
type frameRing struct {
	items      []umem.Frame
	head, tail uint32
}

// newFrameRing has room for at least n frames.
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

// pop fills dst from the front and returns how many there were.
func (q *frameRing) pop(dst []umem.Frame) int {
	n := min(len(dst), q.len())
	for i := range dst[:n] {
		dst[i] = *q.at(q.head)
		q.head++
	}
	return n
}

// front is what lies in one piece at the front, at most most frames, which skip then drops.
func (q *frameRing) front(most int) []umem.Frame {
	at := int(q.head & uint32(len(q.items)-1))
	n := min(q.len(), len(q.items)-at, most)
	return q.items[at : at+n]
}

func (q *frameRing) skip(n int) { q.head += uint32(n) }

// Method is how messages get to a receiver.
type Method string

const (
	AnyMethod Method = "any"   // as the receiver wants them; the default
	BySend    Method = "send"  // SEND, into receives that the receiver has posted
	ByWrite   Method = "write" // WRITE with immediate, into memory that the receiver grants
)
