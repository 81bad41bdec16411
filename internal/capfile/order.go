package capfile

import "encoding/binary"

// order is the byte order of a file or section.
type order uint8

const (
	unknown order = iota
	little
	big
)

func (p *Parser) u16(b []byte) uint16 {
	if p.order == big {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (p *Parser) u32(b []byte) uint32 {
	if p.order == big {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (p *Parser) u64(b []byte) uint64 {
	if p.order == big {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}
