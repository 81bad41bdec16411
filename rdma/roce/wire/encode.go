package wire

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
