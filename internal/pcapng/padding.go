package pcapng

// MinPaddingLen is the shortest padding block in bytes.
const MinPaddingLen = 16

// PutPadding fills dst with a block that readers skip. len(dst) is a multiple of 4 from MinPaddingLen to
// MaxBlockLen.
func PutPadding(dst []byte) {
	putFrame(dst, TypeMark)
	le.PutUint32(dst[markPEN:], PEN)
}

// PaddingLen is how many bytes of padding a batch of used bytes (a multiple of 4) needs to reach a multiple
// of align. It is 0 or enough for PutPadding, and so may be more than the distance to the next multiple.
func PaddingLen(used int64, align uint32) uint32 {
	gap := uint32(-used) & (align - 1)
	if gap != 0 && gap < MinPaddingLen {
		gap += align
	}
	return gap
}
