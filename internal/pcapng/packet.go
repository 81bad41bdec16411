package pcapng

// Options of packets: their flags and number.
const (
	epbFlags    = 2
	epbPacketID = 5
)

const (
	// PacketHeaderLen is the number of bytes before the packet in its block.
	PacketHeaderLen = 28
	// packetOverhead adds the trailing block length.
	packetOverhead = PacketHeaderLen + 4
)

// PacketBlockLen is the length of the block of a packet with capLen captured bytes (at most MaxCapLen), rounded up to
// align bytes: 4 in the packed layout, 512 in the slot layout, a power of two up to 4096. Every result can be padded.
func PacketBlockLen(capLen, align uint32) uint32 {
	return uint32(roundUp(packetOverhead+uint64(capLen), uint64(align)))
}

// PutPacketHeader writes the PacketHeaderLen bytes directly before the packet. iface is the index of its
// interface in the head, ns the time in nanoseconds since the epoch. The file stores capLen of origLen bytes.
// blockLen is from PacketBlockLen.
func PutPacketHeader(dst []byte, iface uint32, ns uint64, capLen, origLen, blockLen uint32) {
	_ = dst[PacketHeaderLen-1]
	le.PutUint32(dst, TypePacket)
	le.PutUint32(dst[4:], blockLen)
	le.PutUint32(dst[8:], iface)
	le.PutUint32(dst[12:], uint32(ns>>32))
	le.PutUint32(dst[16:], uint32(ns))
	le.PutUint32(dst[20:], capLen)
	le.PutUint32(dst[24:], origLen)
}

// PacketTailLen returns how many bytes PutPacketTail writes after the packet.
func PacketTailLen(capLen, blockLen uint32) uint32 { return blockLen - PacketHeaderLen - capLen }

// PutPacketTail writes the rest of the block after the packet: padding to 4 bytes, an option that fills up to
// blockLen, and the block length again. dst starts directly after the packet. PutPacketTail writes every one
// of PacketTailLen bytes, and none beyond.
func PutPacketTail(dst []byte, capLen, blockLen uint32) {
	putPadOption(beginTail(dst, capLen, blockLen))
}

// beginTail writes the tail without options and returns the room for those.
func beginTail(dst []byte, capLen, blockLen uint32) []byte {
	n := PacketTailLen(capLen, blockLen)
	dst = dst[:n]
	clear(dst)
	le.PutUint32(dst[n-4:], blockLen)
	return dst[-capLen&3 : n-4]
}

// putPadOption makes the zeroed dst a list of options without information. Four zeros are opt_endofopt.
func putPadOption(dst []byte) {
	switch n := len(dst); {
	case n >= 12:
		le.PutUint16(dst, optPad)
		le.PutUint16(dst[2:], uint16(n-8))
		le.PutUint32(dst[4:], PEN)
	case n == 8:
		le.PutUint16(dst, optLocal)
	}
}

// NumberLen is how many bytes of a packet's block its number takes. PacketBlockLen for a packet that is
// longer by so many bytes has room for it.
const NumberLen = 12

// PutNumberedTail is PutPacketTail with the packet's number (epb_packetid) before the option that
// fills the block. On a ring of segments the number distinguishes a packet of this batch from an
// older one at the same place. blockLen is PacketBlockLen of capLen + NumberLen.
func PutNumberedTail(dst []byte, capLen, blockLen uint32, number uint64) {
	putPadOption(putNumber(beginTail(dst, capLen, blockLen), number))
}

// putNumber writes the option with a number and returns the rest of the slice.
func putNumber(options []byte, number uint64) []byte {
	le.PutUint16(options, epbPacketID)
	le.PutUint16(options[2:], 8)
	le.PutUint64(options[4:], number)
	return options[NumberLen:]
}

// PutPacket copies a packet into dst as a block of blockLen bytes (PacketBlockLen of len(data)), for the
// packed layout and for streams. This is the only copy in that layout.
func PutPacket(dst []byte, iface uint32, ns uint64, data []byte, origLen, blockLen uint32) {
	capLen := uint32(len(data))
	PutPacketHeader(dst, iface, ns, capLen, origLen, blockLen)
	copy(dst[PacketHeaderLen:blockLen], data)
	PutPacketTail(dst[PacketHeaderLen+capLen:], capLen, blockLen)
}
