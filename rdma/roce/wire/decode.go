package wire

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
