package wire

import (
	"sync/atomic"
	"unsafe"
)

// Layout of a ring in shared memory, in bytes. head is the number of entries that the producer has added, tail
// that which the consumer has taken.
const (
	ringMagic  = 0x474e5275 // "uRNG"
	entriesAt  = 4
	headAt     = 64
	tailAt     = 128
	asleepAt   = 136
	ringHeader = 256

	// EntryLen is the length of an entry in bytes.
	EntryLen = 64
	// Rings is the number of rings of a port.
	Rings = 4
)

// Numbers of a port's rings, which lie one behind the other.
const (
	RingReceived  = 0 // to the program: frames with messages, packets or blocks
	RingReleased  = 1 // back to the daemon: those frames
	RingSubmitted = 2 // to the daemon: frames with messages, or requests
	RingDone      = 3 // back to the program: those frames, and what became of them
)

// RingLen returns the length of a ring in bytes.
func RingLen(entries uint32) uint64 { return ringHeader + uint64(entries)*EntryLen }

// PortLen returns the length of a port's rings in bytes, before it is rounded up to whole pages.
func PortLen(entries uint32) uint64 { return Rings * RingLen(entries) }

// Entry is an entry of a ring:
//
//	 0      8  offset of the bytes in the program's memory
//	 8      4  length
//	12      4  generation of the frame
//	16      8  sequence of a message of the program, or of a request
//	24      8  position: in the flow, or in its log; of blocks: their offset in the file or device
//	32      8  stamp: when it arrived, nanoseconds since 1970
//	40      4  status: a Reason
//	44     20  0
type Entry struct {
	Offset     uint64
	Length     uint32
	Generation uint32
	Sequence   uint64
	Position   uint64
	Stamp      uint64
	Status     Reason
}

// words is an entry as it lies in memory. It is read and written word by word: the other side may change it
// at any time.
type words [EntryLen / 8]atomic.Uint64

// Ring is one side's view of a ring. Its memory is shared with a side that may write anything into it, so
// indices of this side's own are kept here, and an entry is copied before it is looked at.
type Ring struct {
	head, tail *atomic.Uint64
	asleep     *atomic.Uint32
	entries    []words
	mask       uint64
	own        uint64 // head of a producer, tail of a consumer
	seen       uint64 // the other side's index when it was read last
}

// NewRing lays out ring number n in a port's memory, which must have PortLen bytes. If fresh, it writes the
// header.
func NewRing(memory []byte, n int, entries uint32, fresh bool) *Ring {
	start := uint64(n) * RingLen(entries)
	b := memory[start : start+RingLen(entries)]
	at := func(offset uintptr) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), offset) }
	r := &Ring{
		head: (*atomic.Uint64)(at(headAt)), tail: (*atomic.Uint64)(at(tailAt)), asleep: (*atomic.Uint32)(at(asleepAt)),
		entries: unsafe.Slice((*words)(at(ringHeader)), entries), mask: uint64(entries) - 1,
	}
	if fresh {
		le.PutUint32(b, ringMagic)
		le.PutUint32(b[entriesAt:], entries)
	}
	return r
}

// Room returns how many entries the producer may add. ok is false if the consumer's index is impossible.
func (r *Ring) Room() (n int, ok bool) {
	r.seen = r.tail.Load()
	used := r.own - r.seen
	return int(uint64(len(r.entries)) - used), used <= uint64(len(r.entries))
}

// Put writes the producer's next entry. There must be room. Publish makes it visible.
func (r *Ring) Put(e *Entry) {
	w := &r.entries[r.own&r.mask]
	w[0].Store(e.Offset)
	w[1].Store(uint64(e.Generation)<<32 | uint64(e.Length))
	w[2].Store(e.Sequence)
	w[3].Store(e.Position)
	w[4].Store(e.Stamp)
	w[5].Store(uint64(e.Status))
	r.own++
}

// Publish makes what was put visible to the consumer, and reports whether the consumer sleeps and must be woken.
func (r *Ring) Publish() (asleep bool) {
	if r.head.Load() == r.own {
		return false
	}
	r.head.Store(r.own)
	return r.asleep.Load() != 0
}

// Waiting returns how many entries wait for the consumer. ok is false if the producer's index is impossible.
func (r *Ring) Waiting() (n int, ok bool) {
	r.seen = r.head.Load()
	waiting := r.seen - r.own
	return int(waiting), waiting <= uint64(len(r.entries))
}

// Get copies the consumer's next entry. One must be waiting. Advance gives its place back.
func (r *Ring) Get() (e Entry) {
	w := &r.entries[r.own&r.mask]
	e.Offset = w[0].Load()
	second := w[1].Load()
	e.Length, e.Generation = uint32(second), uint32(second>>32)
	e.Sequence, e.Position, e.Stamp, e.Status = w[2].Load(), w[3].Load(), w[4].Load(), Reason(w[5].Load())
	r.own++
	return e
}

// Advance gives the places of the entries that were copied back to the producer.
func (r *Ring) Advance() {
	if r.tail.Load() != r.own {
		r.tail.Store(r.own)
	}
}

// Sleep says that the consumer is about to wait. It must look again afterwards, and then wait only if nothing has
// come. Awake ends it.
func (r *Ring) Sleep() { r.asleep.Store(1) }

// Awake says that the consumer does not wait.
func (r *Ring) Awake() {
	if r.asleep.Load() != 0 {
		r.asleep.Store(0)
	}
}

// Len returns the number of entries.
func (r *Ring) Len() int { return len(r.entries) }

// Taken returns how many entries a consumer has taken, or a producer added.
func (r *Ring) Taken() uint64 { return r.own }
