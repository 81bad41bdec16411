package wire

// Only has the headers of an RC message in one packet, SEND_ONLY or WRITE_ONLY. Most packets for
// which a microsecond matters are of these kinds. The headers are few words, so Only reads and
// writes them without Header and its table.
type Only struct {
	Write     bool // a WRITE, not a SEND
	Solicited bool
	AckReq    bool
	Pad       uint8
	DestQPN   uint32 // 24 bits
	PSN       PSN

	// WRITE only.
	VA        uint64
	RKey      uint32
	DMALength uint32
}

const (
	rethBytes = 16
	// fullMember is the bit of a P_Key for full membership.
	fullMember = 0x8000
)

// HeaderBytes returns how many bytes Encode writes.
func (o *Only) HeaderBytes() int {
	if o.Write {
		return BTHBytes + rethBytes
	}
	return BTHBytes
}

// Decode reads the headers of a packet. b is the transport part, from the base transport header
// through the ICRC. Decode returns the offset and the length of the payload. ok is false if the
// packet is of another kind, invalid or unusual: use Header.Decode for it.
func (o *Only) Decode(b []byte) (from, length int, ok bool) {
	if len(b) < BTHBytes+ICRCBytes {
		return 0, 0, false
	}
	first, second := be.Uint64(b), be.Uint32(b[8:])
	from = BTHBytes
	switch Opcode(first >> 56) {
	case RCSendOnly:
		o.Write = false
	case RCWriteOnly:
		if from += rethBytes; len(b) < from+ICRCBytes {
			return 0, 0, false
		}
		o.Write = true
		o.VA, o.RKey, o.DMALength = be.Uint64(b[BTHBytes:]), be.Uint32(b[BTHBytes+8:]), be.Uint32(b[BTHBytes+12:])
	default:
		return 0, 0, false
	}
	flags := uint8(first >> 48)
	o.Pad = flags >> padShift & padMask
	length = len(b) - from - int(o.Pad) - ICRCBytes
	o.Solicited, o.AckReq = flags&solicitedBit != 0, second>>31 != 0
	o.DestQPN, o.PSN = uint32(first)&mask24, PSN(second&mask24)
	return from, length, flags&versionMask == 0 && uint16(first>>32)|fullMember == DefaultPKey && length >= 0 && o.Pad == Pad(length)
}

// Acknowledges reports whether a valid packet is a positive acknowledgement of RC. b is the
// transport part.
func Acknowledges(b []byte) bool {
	return len(b) > BTHBytes && Opcode(b[0]) == RCAcknowledge && Syndrome(b[BTHBytes]).IsACK()
}

// Encode writes the headers to the front of b, with the same bytes as Header.Encode. It returns
// HeaderBytes, and b must have that many. It does not write bits beyond those on the wire.
func (o *Only) Encode(b []byte) int {
	n := o.HeaderBytes()
	b = b[:n]
	first := uint64(RCSendOnly)<<56 | migReqBit<<48 | uint64(o.Pad&padMask)<<(48+padShift) | DefaultPKey<<32 | uint64(o.DestQPN&mask24)
	if o.Write {
		first ^= uint64(RCSendOnly^RCWriteOnly) << 56
		be.PutUint64(b[BTHBytes:], o.VA)
		be.PutUint32(b[BTHBytes+8:], o.RKey)
		be.PutUint32(b[BTHBytes+12:], o.DMALength)
	}
	if o.Solicited {
		first |= solicitedBit << 48
	}
	second := uint32(o.PSN) & mask24
	if o.AckReq {
		second |= 1 << 31
	}
	be.PutUint64(b, first)
	be.PutUint32(b[8:], second)
	return n
}
