package pcapng

// Direction is the low bits of a packet's flags (epb_flags).
type Direction uint32

// The directions.
const (
	Inbound  Direction = 1 // the packet arrived
	Outbound Direction = 2 // the host sent it
)

// DirectionLen is how many bytes of a packet's block its direction takes. PacketBlockLen for a packet that is
// longer by so many bytes has room for it.
const DirectionLen = 8

// PutDirectedTail is PutPacketTail with the packet's direction before the filling option. blockLen is
// PacketBlockLen of capLen + DirectionLen.
func PutDirectedTail(dst []byte, capLen, blockLen uint32, d Direction) {
	putPadOption(putDirection(beginTail(dst, capLen, blockLen), d))
}

// PutNumberedDirectedTail is PutDirectedTail with the packet's number in front, as in PutNumberedTail.
// blockLen is PacketBlockLen of capLen + NumberLen + DirectionLen.
func PutNumberedDirectedTail(dst []byte, capLen, blockLen uint32, number uint64, d Direction) {
	putPadOption(putDirection(putNumber(beginTail(dst, capLen, blockLen), number), d))
}

// putDirection writes the option with a direction and returns the rest of the slice.
func putDirection(options []byte, d Direction) []byte {
	le.PutUint16(options, epbFlags)
	le.PutUint16(options[2:], 4)
	le.PutUint32(options[4:], uint32(d))
	return options[DirectionLen:]
}
