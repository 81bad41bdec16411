package pcapng

import "encoding/binary"

// Block types. The values are those of draft-ietf-opsawg-pcapng, section 11.1, except for TypeMark.
const (
	TypeSection    = 0x0A0D0D0A
	TypeInterface  = 1
	TypeStatistics = 5
	TypePacket     = 6
	// TypeMark is our own type, for batch headers, bridges and padding. Its high bit is reserved for local
	// use. The rest is PEN.
	TypeMark = 0x80000000 | PEN
)

const (
	// PEN is the Private Enterprise Number in options and marks. It is RFC 5612's for documentation, since
	// none is assigned.
	PEN = 32473
	// MaxBlockLen is the longest block read or written, in bytes. libpcap refuses blocks over 393,264.
	MaxBlockLen = 384 << 10
	// MaxCapLen is the longest captured packet in bytes, libpcap's MAXIMUM_SNAPLEN.
	MaxCapLen = 256 << 10
	// LinkTypeEthernet is LINKTYPE_ETHERNET.
	LinkTypeEthernet = 1
	// LinkTypeMessages is LINKTYPE_USER1, for messages of a feed without the headers of their packets.
	LinkTypeMessages = 148

	minBlockLen    = 12 // type, length, length again
	byteOrderMagic = 0x1A2B3C4D
)

var le = binary.LittleEndian

// beginBlock appends a block's type and room for its length.
func beginBlock(dst []byte, blockType uint32) (out []byte, start int) {
	start = len(dst)
	return le.AppendUint32(le.AppendUint32(dst, blockType), 0), start
}

// endBlock closes the block that began at start and fills in both lengths.
func endBlock(dst []byte, start int) []byte {
	n := uint32(len(dst)-start) + 4
	le.PutUint32(dst[start+4:], n)
	return le.AppendUint32(dst, n)
}

// putFrame writes type, length and trailing length of the block that fills dst, and zeros between.
func putFrame(dst []byte, blockType uint32) {
	n := uint32(len(dst))
	clear(dst[8 : n-4])
	le.PutUint32(dst, blockType)
	le.PutUint32(dst[4:], n)
	le.PutUint32(dst[n-4:], n)
}

// roundUp rounds n up to a multiple of align, a power of two.
func roundUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }
