package wire

import (
	"hash/crc32"
	"sync/atomic"
	"unsafe"
)

// Layout of a channel's ring, in bytes. The writer alone writes it.
const (
	channelMagic  = 0x4e484375 // "uCHN"
	slotsAt       = 4
	slotLenAt     = 8
	flagsAt       = 12
	lastAt        = 64  // sequence of the last message
	stallsAt      = 128 // messages for which the writer had to wait
	numberingAt   = 192 // number of the run of sequences; nothing else is in its cache line
	channelHeader = 4096

	// ChannelHeader is where the slots begin.
	ChannelHeader = channelHeader

	// SlotHeader is what a slot has before the payload: sequence 8, length 4, CRC-32C of both and the payload 4.
	SlotHeader = 16
	// MinSlot and MaxSlot bound the length of a slot, a multiple of 64.
	MinSlot, MaxSlot = 64, 1 << 16
)

// Layout of a reader's page, which that reader alone writes.
const (
	cursorAt     = 0  // sequence that it reads next
	lostAt       = 8  // messages that it has lost
	cursorSleeps = 64 // it waits
)

// Flags of a ring.
const (
	// Sums says that the writer puts a checksum into each slot.
	Sums = 1 << 0
	// Unordered says that slots come by RDMA WRITE, whose bytes arrive in no promised order: up to the sequence in the
	// header everything has arrived, and beyond it the checksum tells what has.
	Unordered = 1 << 1
)

// readerStride is the distance of two readers' words in the page where the daemon says who is there.
const readerStride = 64

// MaxReaders is the largest number of readers of a channel.
const MaxReaders = 16

// ChannelLen returns the length of a channel's ring in bytes.
func ChannelLen(slots, slot uint32) uint64 { return channelHeader + uint64(slots)*uint64(slot) }

// PageLen is the length of a reader's page, and of the page where the daemon says who is there.
const PageLen = 4096

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Channel is one side's view of a channel's ring. One goroutine at a time calls Put or Get.
type Channel struct {
	memory      []byte
	last        *atomic.Uint64
	stalls      *atomic.Uint64
	numbering   *atomic.Uint64
	slots, slot uint64
	sums        bool     // the writer puts checksums
	unordered   bool     // readers must check them
	head        [12]byte // of the slot whose checksum is computed
}

// NewChannel lays out a ring in memory of ChannelLen bytes, and writes its header.
func NewChannel(memory []byte, slots, slot, flags uint32) *Channel {
	le.PutUint32(memory, channelMagic)
	le.PutUint32(memory[slotsAt:], slots)
	le.PutUint32(memory[slotLenAt:], slot)
	le.PutUint32(memory[flagsAt:], flags)
	return channelOf(memory, slots, slot, flags)
}

// ViewChannel is the view of a ring whose header is written.
func ViewChannel(memory []byte, slots, slot uint32) *Channel {
	return channelOf(memory, slots, slot, le.Uint32(memory[flagsAt:]))
}

func channelOf(memory []byte, slots, slot, flags uint32) *Channel {
	return &Channel{
		memory: memory, last: wordAt(memory, lastAt), stalls: wordAt(memory, stallsAt), numbering: wordAt(memory, numberingAt),
		slots: uint64(slots), slot: uint64(slot), sums: flags&Sums != 0, unordered: flags&Unordered != 0,
	}
}

func wordAt(b []byte, at uintptr) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at))
}

func halfAt(b []byte, at uintptr) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at))
}

// Last returns the sequence of the last message.
func (c *Channel) Last() uint64 { return c.last.Load() }

// SetLast says which message is the last one.
func (c *Channel) SetLast(n uint64) { c.last.Store(n) }

// Stalls returns how many messages the writer had to wait for.
func (c *Channel) Stalls() uint64 { return c.stalls.Load() }

// CountStall counts a message for which the writer had to wait.
func (c *Channel) CountStall() { c.stalls.Store(c.stalls.Load() + 1) }

// Numbering returns the number of the run of sequences: with another one they have begun again.
func (c *Channel) Numbering() uint64 { return c.numbering.Load() }

// SetNumbering says of which run the sequences are.
func (c *Channel) SetNumbering(n uint64) { c.numbering.Store(n) }

// Settle is for a ring whose writer has ended: a message that is whole is the last one, although its writer did not come
// to say so.
func (c *Channel) Settle() {
	if n := c.last.Load() + 1; wordAt(c.at(n), 0).Load() == n {
		c.last.Store(n)
	}
}

// Forget empties all slots. Nobody may write to the ring meanwhile.
func (c *Channel) Forget() {
	for n := range c.slots {
		wordAt(c.at(n), 0).Store(0)
	}
}

// First returns the first sequence that is there of those without a gap before the end, and that is safe to read for a
// while; last+1 if there is none.
func (c *Channel) First(last uint64) uint64 {
	n := last
	for n > 0 && n+c.slots*3/4 > last && wordAt(c.at(n), 0).Load() == n {
		n--
	}
	return n + 1
}

// Place returns where the slot of a sequence begins, from the beginning of the ring.
func (c *Channel) Place(n uint64) uint64 { return channelHeader + n%c.slots*c.slot }

// Look returns the bytes that the slot of a sequence has in use, its header included; ok is false if it has not that
// sequence, or claims more than there is room for.
func (c *Channel) Look(n uint64) (bytes uint32, ok bool) {
	s := c.at(n)
	if wordAt(s, 0).Load() != n {
		return 0, false
	}
	length := uint32(wordAt(s, 8).Load())
	return length + SlotHeader, uint64(length) <= c.slot-SlotHeader
}

// Slots returns the number of slots.
func (c *Channel) Slots() uint64 { return c.slots }

// Longest returns the length of the longest message.
func (c *Channel) Longest() int { return int(c.slot) - SlotHeader }

// at returns the slot of a sequence.
func (c *Channel) at(n uint64) []byte {
	start := channelHeader + n%c.slots*c.slot
	return c.memory[start : start+c.slot : start+c.slot]
}

// Put writes a message, which must fit, under the next sequence. Only the writer calls it.
func (c *Channel) Put(payload []byte) uint64 {
	n := c.last.Load() + 1
	s := c.at(n)
	sequence := wordAt(s, 0)
	sequence.Store(0) // a reader that copies the old message sees that it is gone
	fence()
	copy(s[SlotHeader:], payload)
	second := uint64(len(payload))
	if c.sums {
		second |= uint64(c.sum(n, payload)) << 32
	}
	wordAt(s, 8).Store(second)
	sequence.Store(n)
	c.last.Store(n)
	return n
}

// sum is the checksum of a slot.
func (c *Channel) sum(n uint64, payload []byte) uint32 {
	le.PutUint64(c.head[:], n)
	le.PutUint32(c.head[8:], uint32(len(payload)))
	return crc32.Update(crc32.Checksum(c.head[:], castagnoli), castagnoli, payload)
}

// Found says what a reader has found at a sequence.
type Found int

// What a reader can find.
const (
	NotYet  Found = iota // the message is not there yet
	Read                 // it was copied
	Passed               // it is not there any more, or never was
	Damaged              // the writer has broken the rules
)

// Get copies the message with a sequence into dst, which must have room for the longest one.
func (c *Channel) Get(n uint64, dst []byte) (length int, f Found) {
	if length, f = c.copy(n, dst); f != NotYet || c.holdsOlder(n) {
		return length, f
	}
	if c.last.Load() < n {
		return 0, NotYet
	}
	// What is before the last message is there by now, or never comes.
	if length, f = c.copy(n, dst); f == NotYet {
		f = Passed
	}
	return length, f
}

// holdsOlder reports whether the slot of a sequence still has an older message. Then the writer has not come to n, so
// that a reader that polls need not load last, and leaves that cache line to the writer. Where slots come by RDMA, a gap
// leaves older messages behind last.
func (c *Channel) holdsOlder(n uint64) bool {
	held := wordAt(c.at(n), 0).Load()
	return held != 0 && held < n && !c.unordered
}

// copy copies the message with a sequence if it is there.
func (c *Channel) copy(n uint64, dst []byte) (length int, f Found) {
	s := c.at(n)
	sequence := wordAt(s, 0)
	if sequence.Load() != n {
		return 0, NotYet
	}
	second := wordAt(s, 8).Load()
	length = int(uint32(second))
	if length > len(s)-SlotHeader || length > len(dst) {
		if c.unordered || sequence.Load() != n {
			return 0, NotYet
		}
		return 0, Damaged
	}
	copy(dst[:length], s[SlotHeader:])
	fence()
	if sequence.Load() != n || c.unordered && c.sum(n, dst[:length]) != uint32(second>>32) {
		return 0, NotYet
	}
	return length, Read
}

// Oldest returns the sequence of the oldest message that is safe to read for a while: a quarter of the ring stays
// between it and the writer.
func (c *Channel) Oldest() uint64 {
	last := c.last.Load()
	if last <= c.slots*3/4 {
		return 1
	}
	return last - c.slots*3/4 + 1
}

// ReaderPage is the page of a reader.
type ReaderPage struct {
	cursor, lost *atomic.Uint64
	asleep       *atomic.Uint32
}

// NewReaderPage lays out a page of PageLen bytes.
func NewReaderPage(memory []byte) *ReaderPage {
	return &ReaderPage{wordAt(memory, cursorAt), wordAt(memory, lostAt), halfAt(memory, cursorSleeps)}
}

// Cursor returns the sequence that the reader reads next.
func (p *ReaderPage) Cursor() uint64 { return p.cursor.Load() }

// SetCursor says which sequence the reader reads next.
func (p *ReaderPage) SetCursor(n uint64) { p.cursor.Store(n) }

// Lost returns how many messages the reader has lost.
func (p *ReaderPage) Lost() uint64 { return p.lost.Load() }

// AddLost counts lost messages.
func (p *ReaderPage) AddLost(n uint64) { p.lost.Store(p.lost.Load() + n) }

// Asleep reports whether the reader waits.
func (p *ReaderPage) Asleep() bool { return p.asleep.Load() != 0 }

// SetAsleep says whether the reader waits.
func (p *ReaderPage) SetAsleep(waits bool) {
	v := uint32(0)
	if waits {
		v = 1
	}
	if p.asleep.Load() != v {
		p.asleep.Store(v)
	}
}

// Present is the page where the daemon says which readers are there.
type Present struct{ memory []byte }

// NewPresent lays out a page of PageLen bytes.
func NewPresent(memory []byte) Present { return Present{memory} }

// Has reports whether a reader is there, and whether the writer waits for it.
func (p Present) Has(reader int) (there, blocks bool) {
	v := halfAt(p.memory, uintptr(reader*readerStride)).Load()
	return v != 0, v == 2
}

// Set says whether a reader is there, and whether the writer waits for it.
func (p Present) Set(reader int, there, blocks bool) {
	v := uint32(0)
	switch {
	case there && blocks:
		v = 2
	case there:
		v = 1
	}
	halfAt(p.memory, uintptr(reader*readerStride)).Store(v)
}
