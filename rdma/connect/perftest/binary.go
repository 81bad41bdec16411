package perftest

import "encoding/binary"

// BinaryBytes is the length of a key with option -R: struct pingpong_dest of perftest's
// src/perftest_resources.h. All of its numbers are big-endian.
const BinaryBytes = 56

// Binary returns the key as the programs send it with option -R.
func (k *Key) Binary() []byte {
	b := make([]byte, BinaryBytes)
	for i, n := range []uint32{uint32(k.LID), uint32(k.Reads), k.QPN, k.PSN, k.RKey} {
		binary.BigEndian.PutUint32(b[4*i:], n)
	}
	binary.BigEndian.PutUint64(b[24:], k.Addr)
	copy(b[32:], k.GID[:])
	binary.BigEndian.PutUint32(b[48:], k.SRQN)
	return b
}

// KeyOfBinary is the inverse of Binary. It returns the zero Key for shorter input. It truncates
// numbers that do not fit their fields; Parameters checks the rest.
func KeyOfBinary(b []byte) (k Key) {
	if len(b) < BinaryBytes {
		return k
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	k = Key{LID: uint16(word(0)), Reads: uint16(word(4)), QPN: word(8), PSN: word(12), RKey: word(16), Addr: binary.BigEndian.Uint64(b[24:]), SRQN: word(48)}
	copy(k.GID[:], b[32:])
	return k
}
