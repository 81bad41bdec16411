package pcapng

// Option codes used in more than one kind of block.
const (
	optEnd     = 0
	optComment = 1
	// optPad is the custom option "binary, do not copy": a PEN, then zeros.
	optPad = 19373
	// optLocal is an empty option from the range for local use. With optEnd it fills 8 bytes, where optPad has no room.
	optLocal = 0x8000
)

func appendOption(dst []byte, code uint16, value []byte) []byte {
	dst = le.AppendUint16(dst, code)
	dst = le.AppendUint16(dst, uint16(len(value)))
	dst = append(dst, value...)
	return append(dst, make([]byte, roundUp(uint64(len(value)), 4)-uint64(len(value)))...)
}

// appendText appends a text option, or nothing for an empty text.
func appendText(dst []byte, code uint16, text string) []byte {
	if text == "" {
		return dst
	}
	return appendOption(dst, code, []byte(text))
}

func appendUint64(dst []byte, code uint16, v uint64) []byte {
	dst = le.AppendUint16(dst, code)
	dst = le.AppendUint16(dst, 8)
	return le.AppendUint64(dst, v)
}

func appendEnd(dst []byte) []byte { return le.AppendUint32(dst, optEnd) }
