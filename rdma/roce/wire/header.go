package wire

import "encoding/binary"

const (
	// BTHBytes is the length of the base transport header.
	BTHBytes = 12
	// MaxHeaderBytes is the greatest length of a base transport header with its extension
	// headers: those of an atomic.
	MaxHeaderBytes = 40
	// CNPBytes is the length of a CNP's payload, all of it zero and ignored.
	CNPBytes = 16
	// DefaultPKey is the default partition with full membership, the only one of RoCE.
	DefaultPKey = 0xffff
)

// be is the byte order of everything but the ICRC.
var be = binary.BigEndian

// Header is the base transport header of a packet and every extension header it may have.
// Fields of extension headers that the opcode does not have are zero after Decode and ignored
// by Encode. The transport version is not a field: it is zero.
type Header struct {
	Opcode    Opcode
	Pad       uint8 // bytes of padding after the payload, 0 to 3
	Solicited bool  // wakes a completion queue armed for solicited completions
	MigReq    bool  // path migration state: set
	FECN      bool  // not used by RoCE v2, which marks congestion in the IP header
	BECN      bool  // set in a CNP
	AckReq    bool  // the responder shall acknowledge
	PKey      uint16
	DestQPN   uint32 // 24 bits
	PSN       PSN
	// Reserved are the reserved bits, kept so that a packet encodes to the same bytes. They are
	// zero in packets that we send.
	Reserved Reserved

	// RETH and AtomicETH.
	VA        uint64 // in the peer's memory
	RKey      uint32
	DMALength uint32 // of the whole message in bytes; RETH only
	SwapAdd   uint64 // what CompareSwap stores, what FetchAdd adds
	Compare   uint64 // of CompareSwap

	// AETH and AtomicAckETH.
	Syndrome Syndrome
	MSN      uint32 // 24 bits: messages that the responder has completed
	Original uint64 // the value before the atomic

	Immediate  [4]byte // as the sender gave it
	Invalidate uint32  // the rkey to invalidate

	// DETH.
	QKey      uint32
	SourceQPN uint32 // 24 bits
}

// Reserved are a header's reserved bits, in the lower bits of each.
type Reserved struct {
	BTH4 uint8 // six, next to FECN and BECN
	BTH8 uint8 // seven, next to AckReq
	DETH uint8 // eight, in front of SourceQPN
}

const (
	solicitedBit = 0x80 // of byte 1
	migReqBit    = 0x40
	padShift     = 4
	padMask      = 3
	versionMask  = 0x0f
	fecnBit      = 0x80 // of byte 4
	becnBit      = 0x40
	reserved4    = 0x3f
	ackReqBit    = 0x80 // of byte 8
	reserved8    = 0x7f
	mask24       = 1<<24 - 1
)

// Decode reads the headers at the front of b, which begins with the base transport header, and
// returns their length. b may end after the headers. Unless the result is WellFormed, h is
// unchanged and n is 0. Decode does not keep b.
func (h *Header) Decode(b []byte) (n int, m Malformed) {
	if len(b) < BTHBytes {
		return 0, HeaderShort
	}
	t := &table[b[0]]
	switch {
	case b[1]&versionMask != 0:
		return 0, TransportVersion
	case t.bytes == 0:
		return 0, OpcodeUnknown
	case len(b) < int(t.bytes):
		return 0, HeaderShort
	}
	*h = Header{}
	h.decodeBase(b)
	h.decodeExtensions(b[BTHBytes:], t.parts)
	return int(t.bytes), WellFormed
}

func (h *Header) decodeBase(b []byte) {
	_ = b[BTHBytes-1]
	h.Opcode = Opcode(b[0])
	h.Solicited = b[1]&solicitedBit != 0
	h.MigReq = b[1]&migReqBit != 0
	h.Pad = b[1] >> padShift & padMask
	h.PKey = be.Uint16(b[2:])
	h.FECN = b[4]&fecnBit != 0
	h.BECN = b[4]&becnBit != 0
	h.Reserved.BTH4 = b[4] & reserved4
	h.DestQPN = be.Uint32(b[4:]) & mask24
	h.AckReq = b[8]&ackReqBit != 0
	h.Reserved.BTH8 = b[8] & reserved8
	h.PSN = PSN(be.Uint32(b[8:]) & mask24)
}

// decodeExtensions reads the extension headers in the order of the wire.
func (h *Header) decodeExtensions(b []byte, p parts) {
	if p&deth != 0 {
		h.QKey, h.Reserved.DETH, h.SourceQPN = be.Uint32(b), b[4], be.Uint32(b[4:])&mask24
		b = b[8:]
	}
	if p&reth != 0 {
		h.VA, h.RKey, h.DMALength = be.Uint64(b), be.Uint32(b[8:]), be.Uint32(b[12:])
		b = b[16:]
	}
	if p&aeth != 0 {
		h.Syndrome, h.MSN = Syndrome(b[0]), be.Uint32(b)&mask24
		b = b[4:]
	}
	if p&atomicETH != 0 {
		h.VA, h.RKey, h.SwapAdd, h.Compare = be.Uint64(b), be.Uint32(b[8:]), be.Uint64(b[12:]), be.Uint64(b[20:])
	}
	if p&atomicAck != 0 {
		h.Original = be.Uint64(b)
	}
	if p&immediate != 0 {
		h.Immediate = [4]byte(b)
	}
	if p&invalidate != 0 {
		h.Invalidate = be.Uint32(b)
	}
}

// Encode writes the headers to the front of b and returns their length, Opcode.HeaderBytes. b must
// have that many bytes; MaxHeaderBytes always suffice. Encode does not write bits of a field beyond
// those on the wire. It writes nothing for an unknown opcode.
func (h *Header) Encode(b []byte) int {
	t := &table[h.Opcode]
	if t.bytes == 0 {
		return 0
	}
	b = b[:t.bytes]
	h.encodeBase(b)
	h.encodeExtensions(b[BTHBytes:], t.parts)
	return len(b)
}

func (h *Header) encodeBase(b []byte) {
	_ = b[BTHBytes-1]
	b[0] = uint8(h.Opcode)
	b[1] = bit(h.Solicited, solicitedBit) | bit(h.MigReq, migReqBit) | h.Pad&padMask<<padShift
	be.PutUint16(b[2:], h.PKey)
	be.PutUint32(b[4:], h.DestQPN&mask24)
	b[4] = bit(h.FECN, fecnBit) | bit(h.BECN, becnBit) | h.Reserved.BTH4&reserved4
	be.PutUint32(b[8:], uint32(h.PSN)&mask24)
	b[8] = bit(h.AckReq, ackReqBit) | h.Reserved.BTH8&reserved8
}

// encodeExtensions writes the extension headers in the order of the wire.
func (h *Header) encodeExtensions(b []byte, p parts) {
	if p&deth != 0 {
		be.PutUint32(b, h.QKey)
		be.PutUint32(b[4:], uint32(h.Reserved.DETH)<<24|h.SourceQPN&mask24)
		b = b[8:]
	}
	if p&reth != 0 {
		be.PutUint64(b, h.VA)
		be.PutUint32(b[8:], h.RKey)
		be.PutUint32(b[12:], h.DMALength)
		b = b[16:]
	}
	if p&aeth != 0 {
		be.PutUint32(b, uint32(h.Syndrome)<<24|h.MSN&mask24)
		b = b[4:]
	}
	if p&atomicETH != 0 {
		h.encodeAtomic(b)
	}
	if p&atomicAck != 0 {
		be.PutUint64(b, h.Original)
	}
	if p&immediate != 0 {
		copy(b, h.Immediate[:])
	}
	if p&invalidate != 0 {
		be.PutUint32(b, h.Invalidate)
	}
}

func (h *Header) encodeAtomic(b []byte) {
	be.PutUint64(b, h.VA)
	be.PutUint32(b[8:], h.RKey)
	be.PutUint64(b[12:], h.SwapAdd)
	be.PutUint64(b[20:], h.Compare)
}

func bit(set bool, mask uint8) uint8 {
	if set {
		return mask
	}
	return 0
}

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
