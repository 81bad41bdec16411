package wire

import "hash/crc32"

// register is the CRC's shift register: an ICRC inverted.
type register uint32

// afterOnes is the register after the eight bytes of ones that stand for the InfiniBand header that RoCE
// does not have.
const afterOnes register = 0xdebb20e3

// slicing has tables to compute the CRC over eight bytes at once. hash/crc32 has the same tables,
// but only for bytes in memory. Here some bytes become ones on their way, without a copy of the
// packet.
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

// word adds eight bytes, the first in the lowest bits.
func (r register) word(w uint64) register {
	w ^= uint64(r)
	return register(slicing[7][byte(w)] ^ slicing[6][byte(w>>8)] ^ slicing[5][byte(w>>16)] ^ slicing[4][byte(w>>24)] ^
		slicing[3][byte(w>>32)] ^ slicing[2][byte(w>>40)] ^ slicing[1][byte(w>>48)] ^ slicing[0][byte(w>>56)])
}

// half adds four bytes, such as those of a trailer.
func (r register) half(w uint32) register {
	w ^= uint32(r)
	return register(slicing[3][byte(w)] ^ slicing[2][byte(w>>8)] ^ slicing[1][byte(w>>16)] ^ slicing[0][byte(w>>24)])
}

// byte adds one byte.
func (r register) byte(b byte) register {
	return register(slicing[0][byte(r)^b]) ^ r>>8
}
