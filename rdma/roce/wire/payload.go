package wire

// PayloadLen returns the length of a packet's payload in bytes. total is the length of its
// transport part, from the base transport header through the ICRC (Envelope.Length). The payload
// begins Opcode.HeaderBytes after the start of the base transport header. The reasons are
// HeaderShort and PadWrong; the length is then 0.
func (h *Header) PayloadLen(total int) (int, Malformed) {
	n := total - h.Opcode.HeaderBytes() - int(h.Pad) - ICRCBytes
	switch {
	case n < 0:
		return 0, HeaderShort
	case h.Pad != Pad(n):
		return 0, PadWrong
	}
	return n, WellFormed
}

// Pad returns how many bytes of zeros follow a payload of n bytes.
func Pad(n int) uint8 { return uint8(-n & padMask) }

// CheckPayload reports whether a packet may have a payload of n bytes on a path with that MTU in
// bytes. It must be 0 for an opcode without payload, exactly the MTU for a packet that others of the
// message follow, and at least one byte for the last of several. It is never more than the MTU. IBTA
// specification, volume 1, 9.2 and 9.4; a CNP is the same on every path.
func CheckPayload(o Opcode, n, mtu int) Malformed {
	t := &table[o]
	switch {
	case t.parts&payload == 0:
		return reasonIf(n != 0, PayloadUnexpected)
	case t.kind == Congestion:
		return reasonIf(n != CNPBytes, PayloadPartial)
	case t.parts&ends == 0:
		return reasonIf(n != mtu, PayloadPartial)
	case n > mtu:
		return PayloadLong
	}
	return reasonIf(n == 0 && t.parts&starts == 0, PayloadMissing)
}

func reasonIf(wrong bool, m Malformed) Malformed {
	if wrong {
		return m
	}
	return WellFormed
}
