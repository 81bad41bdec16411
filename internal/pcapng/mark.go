package pcapng

import (
	"errors"
	"hash/crc32"
)

// Byte positions in a mark. The CRC covers all bytes in front of it.
const (
	markPEN         = 8
	markMagic       = 12
	markVersion     = 16
	markKind        = 18
	markAlign       = 20
	markSegment     = 24
	markSequence    = 40
	markOffset      = 48
	markLength      = 56
	markPackets     = 60
	markDurable     = 64
	markFirstPacket = 72
	markCRC         = 80

	// MinMarkLen is the shortest batch header in bytes, used in the packed layout. The slot layout's has 512
	// bytes.
	MinMarkLen = 88

	magic   = 0x4D444655 // "UFDM" in the file
	version = 1
)

// MinAlign and MaxAlign bound the alignment of batches in bytes; it is a power of two.
const (
	MinAlign = 512
	MaxAlign = 64 << 10
)

type kind uint16

const (
	kindHead   kind = iota + 1 // ends the head unit; its offset is 0 and its length that of the unit
	kindBatch                  // begins a batch
	kindBridge                 // written by recovery over a hole, which is exactly this block
	kindEnd                    // ends a segment of a ring; its slot is longer

	// mended is set in the kind of the mark that ends a recovered segment. Its writer may have ended it
	// elsewhere, or not at all.
	mended kind = 1 << 8
)

// SegmentID identifies a capture file: 16 random bytes.
type SegmentID [16]byte

// Batch describes one batch of a segment, as its mark does.
type Batch struct {
	Segment     SegmentID
	Align       uint32 // of the segment: MinAlign to MaxAlign
	Sequence    uint64 // 1 for the first batch of the segment, then one more each
	Offset      uint64 // file offset of the mark; a multiple of Align
	Length      uint32 // bytes of the batch including the mark; a multiple of Align
	Packets     uint32 // packet blocks in it
	Durable     uint64 // file offset below which the writer knew everything to be durable
	FirstPacket uint64 // number of its first packet; numbers count the written packets, without gaps
	Mended      bool   // ends a recovered segment, which its writer ended elsewhere or not at all
}

// completes reports whether the mark ends a segment with batches that are all durable.
func (b *Batch) completes(k kind) bool {
	return (k == kindEnd || k == kindBatch && b.Packets == 0 && b.Length == b.Align) && !b.Mended && b.Durable == b.Offset && b.Sequence > 1
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PutBatchHeader fills dst with the mark that begins the batch b. len(dst) is a multiple of 4, MinMarkLen or
// more: 512 in the slot layout, so that the packets after it stay aligned.
func PutBatchHeader(dst []byte, b *Batch) { putMark(dst, b, kindBatch) }

// PutEnd fills dst, which is as long as the segment's alignment, with the mark that ends a segment of a ring.
// It uses the same fields of b as PutBatchHeader. The sequence is one more than the last batch's.
func PutEnd(dst []byte, b *Batch) { putMark(dst, b, kindEnd) }

func putMark(dst []byte, b *Batch, k kind) {
	putFrame(dst, TypeMark)
	putMarkFields(dst, b, k)
}

// putMarkFields writes the fields that the CRC covers, and the CRC. The type and the length are
// already in place.
func putMarkFields(dst []byte, b *Batch, k kind) {
	le.PutUint32(dst[markPEN:], PEN)
	le.PutUint32(dst[markMagic:], magic)
	le.PutUint16(dst[markVersion:], version)
	if b.Mended {
		k |= mended
	}
	le.PutUint16(dst[markKind:], uint16(k))
	le.PutUint32(dst[markAlign:], b.Align)
	copy(dst[markSegment:markSequence], b.Segment[:])
	le.PutUint64(dst[markSequence:], b.Sequence)
	le.PutUint64(dst[markOffset:], b.Offset)
	le.PutUint32(dst[markLength:], b.Length)
	le.PutUint32(dst[markPackets:], b.Packets)
	le.PutUint64(dst[markDurable:], b.Durable)
	le.PutUint64(dst[markFirstPacket:], b.FirstPacket)
	le.PutUint32(dst[markCRC:], crc32.Checksum(dst[:markCRC], castagnoli))
}

var (
	errNoMark      = errors.New("not a mark")
	errMarkCRC     = errors.New("mark with a wrong checksum")
	errMarkVersion = errors.New("mark of an unknown version or kind")
	errMarkAlign   = errors.New("mark with an impossible alignment, offset or length")
)

// parseMark reads the mark at the start of src, of which MinMarkLen bytes are enough.
func parseMark(src []byte) (b Batch, k kind, err error) {
	if len(src) < MinMarkLen || le.Uint32(src) != TypeMark ||
		le.Uint32(src[markPEN:]) != PEN || le.Uint32(src[markMagic:]) != magic {
		return b, 0, errNoMark
	}
	if crc32.Checksum(src[:markCRC], castagnoli) != le.Uint32(src[markCRC:]) {
		return b, 0, errMarkCRC
	}
	k = kind(le.Uint16(src[markKind:]))
	b = markFields(src)
	if b.Mended = k&mended != 0; b.Mended {
		k &^= mended
	}
	if le.Uint16(src[markVersion:]) != version || k < kindHead || k > kindEnd || b.Mended && k != kindBatch && k != kindEnd {
		return Batch{}, 0, errMarkVersion
	}
	return b, k, b.check()
}

func markFields(src []byte) (b Batch) {
	b.Align = le.Uint32(src[markAlign:])
	copy(b.Segment[:], src[markSegment:])
	b.Sequence = le.Uint64(src[markSequence:])
	b.Offset = le.Uint64(src[markOffset:])
	b.Length = le.Uint32(src[markLength:])
	b.Packets = le.Uint32(src[markPackets:])
	b.Durable = le.Uint64(src[markDurable:])
	b.FirstPacket = le.Uint64(src[markFirstPacket:])
	return b
}

// check returns an error for numbers that no batch can have, so that later sums cannot overflow.
func (b *Batch) check() error {
	if !validAlign(b.Align) || b.Length == 0 || b.Length%b.Align != 0 || b.Offset%uint64(b.Align) != 0 ||
		b.Offset > 1<<62 || b.FirstPacket > 1<<62 {
		return errMarkAlign
	}
	return nil
}

func validAlign(a uint32) bool { return a >= MinAlign && a <= MaxAlign && a&(a-1) == 0 }
