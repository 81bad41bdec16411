package stream

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/fifo"
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
	waiting fifo.Ring[uint32] // never posted, without a number
	flight  []uint32          // by number
	mask    uint64            // of flight
	first   uint64            // lowest number in flight, or the next number
	last    uint64            // highest number assigned
	results []Result          // a ring
	told    uint64            // results taken
	made    uint64            // results made
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
	b := sendQueue{slots: make([]outgoing, depth), free: make([]uint32, 0, depth), waiting: fifo.New[uint32](depth),
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
	b.waiting.Push(slot)
	return slot
}

// number gives the first waiting message the next number, and reports whether there was one.
func (b *sendQueue) number() bool {
	if b.waiting.Len() == 0 {
		return false
	}
	b.last++
	b.flight[b.last&b.mask] = b.waiting.Pop()
	return true
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
	if b.waiting.Len() == 0 {
		return 0, false
	}
	return b.slots[*b.waiting.At(0)].token, true
}

// drop removes the first waiting message.
func (b *sendQueue) drop() (token uint64, ok bool) {
	if b.waiting.Len() == 0 {
		return 0, false
	}
	slot := b.waiting.Pop()
	b.free = append(b.free, slot)
	return b.slots[slot].token, true
}

// abandon ends all messages. Their numbers are not used again.
func (b *sendQueue) abandon() (n int) {
	for ; b.first <= b.last; n++ {
		b.retire(false, 0)
	}
	for ; b.waiting.Len() > 0; n++ {
		b.end(b.waiting.Pop(), false, 0)
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

// Method is how messages reach the receiver.
type Method string

const (
	AnyMethod Method = "any"   // the receiver decides; the default
	BySend    Method = "send"  // SEND, into receives that the receiver has posted
	ByWrite   Method = "write" // WRITE with immediate, into memory that the receiver grants
)
