package wire

import "hash/crc32"

// longEnough is from how many bytes on hash/crc32 is faster: it has instructions of the processor for them.
const longEnough = 64

// slicing are the tables for eight bytes at a time. hash/crc32 has them too, but only for bytes in memory: here
// they are masked on their way into the sum.
var slicing = makeSlicing()

func makeSlicing() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for i, c := range t[0] {
		for k := 1; k < len(t); k++ {
			c = t[0][byte(c)] ^ c>>8
			t[k][i] = c
		}
	}
	return t
}

// word takes the CRC over eight bytes, the first in the lowest bits.
func (c ICRC) word(w uint64) ICRC {
	w ^= uint64(^uint32(c))
	return ^ICRC(slicing[7][byte(w)] ^ slicing[6][byte(w>>8)] ^ slicing[5][byte(w>>16)] ^ slicing[4][byte(w>>24)] ^
		slicing[3][byte(w>>32)] ^ slicing[2][byte(w>>40)] ^ slicing[1][byte(w>>48)] ^ slicing[0][byte(w>>56)])
}

// byte takes the CRC over one byte.
func (c ICRC) byte(b byte) ICRC {
	s := ^uint32(c)
	return ^ICRC(slicing[0][byte(s)^b] ^ s>>8)
}
