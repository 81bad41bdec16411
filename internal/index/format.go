package index

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

const (
	magic        = "UFDINDEX"
	sectionMagic = 0x54434553 // "SECT" in the file
	version      = 1

	headerLen        = 128
	sectionHeaderLen = 16
	blockLen         = 40

	// maxEntries is the most entries of a section, and maxBlocks the most blocks: what bounds memory.
	maxEntries = 1 << 19
	maxBlocks  = 1 << 16
)

// Suffix ends the name of an index, after the name of its segment.
const Suffix = ".idx"

// Summary is what an index says of the whole segment.
type Summary struct {
	Segment  pcapng.SegmentID
	Size     int64  // bytes of the segment
	Bytes    int64  // of the index
	Batches  uint64 // that are whole and have packets
	Missing  uint64 // that are not whole
	Packets  uint64
	Blocks   uint64
	Entries  uint64
	Unsure   uint64 // blocks that any filter has to look at
	sections uint32
}

var (
	errMagic    = errors.New("it does not begin as an index does")
	errVersion  = errors.New("it is of another version")
	errChecksum = errors.New("a checksum is wrong")
	errNumbers  = errors.New("it has impossible numbers")
	errShort    = errors.New("it ends too early")
)

func (s *Summary) encode() []byte {
	b := make([]byte, headerLen)
	copy(b, magic)
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], s.sections)
	copy(b[16:32], s.Segment[:])
	for i, v := range []uint64{uint64(s.Size), uint64(s.Bytes), s.Batches, s.Missing, s.Packets, s.Blocks, s.Entries, s.Unsure} {
		le.PutUint64(b[32+8*i:], v)
	}
	le.PutUint32(b[headerLen-4:], crc32.Checksum(b[:headerLen-4], castagnoli))
	return b
}

func decodeSummary(b []byte) (s Summary, err error) {
	switch {
	case string(b[:8]) != magic:
		return s, errMagic
	case le.Uint32(b[headerLen-4:]) != crc32.Checksum(b[:headerLen-4], castagnoli):
		return s, errChecksum
	case le.Uint32(b[8:]) != version:
		return s, errVersion
	}
	s.sections = le.Uint32(b[12:])
	copy(s.Segment[:], b[16:])
	s.Size, s.Bytes = int64(le.Uint64(b[32:])), int64(le.Uint64(b[40:]))
	for i, v := range []*uint64{&s.Batches, &s.Missing, &s.Packets, &s.Blocks, &s.Entries, &s.Unsure} {
		*v = le.Uint64(b[48+8*i:])
	}
	return s, nil
}

// block is what an index says of some batches.
type block struct {
	offset      int64
	length      uint32
	packets     uint32
	first, last uint64 // the earliest and the latest time, in nanoseconds since the epoch
	unsure      bool   // it may have keys that are not among the entries
}

func (b *block) encode(dst []byte) {
	le.PutUint64(dst, uint64(b.offset))
	le.PutUint32(dst[8:], b.length)
	le.PutUint32(dst[12:], b.packets)
	le.PutUint64(dst[16:], b.first)
	le.PutUint64(dst[24:], b.last)
	le.PutUint64(dst[32:], 0)
	if b.unsure {
		dst[32] = 1
	}
}

func decodeBlock(src []byte) block {
	return block{
		offset: int64(le.Uint64(src)), length: le.Uint32(src[8:]), packets: le.Uint32(src[12:]),
		first: le.Uint64(src[16:]), last: le.Uint64(src[24:]), unsure: src[32] != 0,
	}
}

// sectionLen is the bytes of a section: header, blocks, hashes, block numbers, checksum.
func sectionLen(blocks, entries int) int {
	return sectionHeaderLen + blocks*blockLen + entries*6 + entries%2*2 + 4
}
