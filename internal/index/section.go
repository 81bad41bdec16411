package index

import "hash/crc32"

// section is some blocks of a segment and the keys that are in them.
type section struct {
	blocks  []block
	entries []uint64 // the short hash, and the number of the block in the section
	scratch []uint64
}

func entry(hash uint32, block int) uint64 { return uint64(hash)<<32 | uint64(block) }

// sort orders the entries by hash. Entries of one hash stay in the order of their blocks.
func (s *section) sort() {
	if cap(s.scratch) < len(s.entries) {
		s.scratch = make([]uint64, cap(s.entries))
	}
	from, to := s.entries, s.scratch[:len(s.entries)]
	for shift := 32; shift < 64; shift += 8 {
		var at [257]int
		for _, e := range from {
			at[e>>shift&0xff+1]++
		}
		for i := 1; i < 256; i++ {
			at[i] += at[i-1]
		}
		for _, e := range from {
			digit := e >> shift & 0xff
			to[at[digit]] = e
			at[digit]++
		}
		from, to = to, from
	}
}

// encode sorts the entries and writes the bytes of the section to dst, which grows as needed.
func (s *section) encode(dst []byte) []byte {
	s.sort()
	n := sectionLen(len(s.blocks), len(s.entries))
	if cap(dst) < n {
		dst = make([]byte, n)
	}
	dst = dst[:n]
	le.PutUint32(dst, sectionMagic)
	le.PutUint32(dst[4:], uint32(len(s.blocks)))
	le.PutUint32(dst[8:], uint32(len(s.entries)))
	le.PutUint32(dst[12:], 0)
	at := dst[sectionHeaderLen:]
	for i := range s.blocks {
		s.blocks[i].encode(at)
		at = at[blockLen:]
	}
	for _, e := range s.entries {
		le.PutUint32(at, uint32(e>>32))
		at = at[4:]
	}
	for _, e := range s.entries {
		le.PutUint16(at, uint16(e))
		at = at[2:]
	}
	clear(at)
	le.PutUint32(dst[n-4:], crc32.Checksum(dst[:n-4], castagnoli))
	return dst
}

func (s *section) reset() { s.blocks, s.entries = s.blocks[:0], s.entries[:0] }
