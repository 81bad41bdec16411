package capfile

import "encoding/binary"

// Of pcapng: types of blocks, and their minimum lengths.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockOldPacket = 2
	blockSimple    = 3
	blockPacket    = 6

	blockLeast   = 12 // type, length, length again
	packetHeader = 28 // in front of the packet

	orderMagic = 0x1a2b3c4d

	optionEnd        = 0
	optionResolution = 9
	optionOffset     = 14
)

// block reads the beginning of a block and, if the block has a packet, everything up to the packet.
func (p *Parser) block(b []byte) (found Packet, ok bool, err error) {
	kind := binary.LittleEndian.Uint32(b) // of a section the same in both orders
	if kind == blockSection {
		if err := p.turn(b[8:]); err != nil {
			return found, false, err
		}
	}
	if p.order == unknown {
		return found, false, p.bad(errFormat)
	}
	if kind != blockSection {
		kind = p.u32(b)
	}
	p.length, p.found = p.u32(b[4:]), false
	if p.Growing && kind == 0 && p.length == 0 {
		p.size = p.start
		p.next(p.start)
		return found, false, nil
	}
	if p.length < blockLeast || p.length%4 != 0 {
		return found, false, p.bad(errLength)
	}
	if p.end = p.start + int64(p.length); p.end > p.size {
		return found, false, p.bad(ErrCut)
	}
	return p.body(kind, b)
}

// turn reads the byte order of a section.
func (p *Parser) turn(magic []byte) error {
	switch {
	case binary.LittleEndian.Uint32(magic) == orderMagic:
		p.order = little
	case binary.BigEndian.Uint32(magic) == orderMagic:
		p.order = big
	default:
		return p.bad(errOrder)
	}
	return nil
}

// body continues according to the type of a block.
func (p *Parser) body(kind uint32, b []byte) (found Packet, ok bool, err error) {
	switch kind {
	case blockSection:
		err = p.longer(28, atSection, 12, 4)
	case blockInterface:
		err = p.longer(20, atInterface, 8, 8)
	case blockSimple:
		err = p.longer(16, atSimple, 8, 4)
	case blockPacket, blockOldPacket:
		if p.length < packetHeader+4 {
			return found, false, p.bad(errLength)
		}
		return p.enhanced(kind, b)
	default:
		p.close()
	}
	return found, false, err
}

// longer asks for bytes of a block that must have a minimum length.
func (p *Parser) longer(least uint32, s step, at int64, n int) error {
	if p.length < least {
		return p.bad(errLength)
	}
	p.want(s, p.start+at, n)
	return nil
}

// close continues with the length at the end of the block.
func (p *Parser) close() { p.want(atTrailer, p.end-4, 4) }

// trailer compares the length at the end of a block with the one at its beginning.
func (p *Parser) trailer(b []byte) (Packet, bool, error) {
	if p.u32(b) != p.length {
		return Packet{}, false, p.bad(errTrailer)
	}
	p.next(p.end)
	return p.packet, p.found, nil
}

// section begins a section, whose interfaces are described again.
func (p *Parser) section(b []byte) error {
	if major := p.u16(b); major != 1 {
		return p.bad(errVersion)
	}
	p.interfaces = p.interfaces[:0]
	p.close()
	return nil
}

// enhanced reads the header of an Enhanced Packet Block, or of the obsolete Packet Block, which has a shorter number of the interface.
func (p *Parser) enhanced(kind uint32, b []byte) (Packet, bool, error) {
	number := p.u32(b[8:])
	if kind == blockOldPacket {
		number = uint32(p.u16(b[8:]))
	}
	if number >= uint32(len(p.interfaces)) {
		return Packet{}, false, p.bad(errInterface)
	}
	of := &p.interfaces[number]
	at, ok := of.time(uint64(p.u32(b[12:]))<<32 | uint64(p.u32(b[16:])))
	if !ok {
		return Packet{}, false, p.bad(errTime)
	}
	p.packet = Packet{Offset: p.start + packetHeader, Len: p.u32(b[20:]), Orig: p.u32(b[24:]), Link: of.link, Time: at, Timed: true}
	return p.holds(packetHeader)
}

// simple reads a Simple Packet Block, which belongs to the first interface and has no time.
func (p *Parser) simple(length uint32) (Packet, bool, error) {
	if len(p.interfaces) == 0 {
		return Packet{}, false, p.bad(errInterface)
	}
	of := &p.interfaces[0]
	p.packet = Packet{Offset: p.start + 12, Len: length, Orig: length, Link: of.link}
	if of.snaplen > 0 {
		p.packet.Len = min(length, of.snaplen)
	}
	return p.holds(12)
}

// holds checks that a packet fits its block, after a header. Options can make a block longer than
// MaxBlock. Its packet is returned at once, so that the caller need not keep the whole block until
// its end.
func (p *Parser) holds(header uint32) (found Packet, ok bool, err error) {
	n := p.packet.Len
	if n > MaxLen || p.length > maxLongBlock || (n+3)&^3 > p.length-header-4 {
		return found, false, p.bad(errLength)
	}
	p.packet.Len = min(n, p.packet.Orig) // bytes after the packet do not belong to it
	p.found = p.length <= MaxBlock
	p.close()
	return p.packet, !p.found, nil
}
