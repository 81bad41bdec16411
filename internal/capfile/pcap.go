package capfile

// Of pcap: the magic numbers of files, and the length of the file's header and of a packet's.
const (
	magicMicro    = 0xa1b2c3d4
	magicNano     = 0xa1b23c4d
	magicModified = 0xa1b2cd34 // of a patch to libpcap with longer packet headers
	magicIxiaCard = 0x1c0001ac // of Ixia's cards
	magicIxiaSoft = 0x1c0001ab // of Ixia's software

	headerLen     = 24
	headerLenIxia = 28 // with the length of the following data
	recordLen     = 16

	linkMask = 0x03ffffff // of the link type; the bits above describe checksums
)

// Versions of pcap before 2.3, and DG/UX's 543.0, have the two lengths of a packet in reverse order. Version
// 2.3 has both orders.
const (
	versionDGUX = 543
	minorEither = 3
)

// swapping says whether packet headers have their two lengths in reverse order.
type swapping uint8

const (
	swapNever  swapping = iota
	swapEither          // where the length that is there would be more than the packet's
	swapAlways
)

// header reads the header of a pcap file.
func (p *Parser) header(b []byte) error {
	switch major, minor := p.u16(b[4:]), p.u16(b[6:]); {
	case major == versionDGUX && minor == 0, major == 2 && minor < minorEither:
		p.swap = swapAlways
	case major != 2:
		return p.bad(errVersion)
	case minor == minorEither:
		p.swap = swapEither
	}
	p.link = p.u32(b[20:]) & linkMask
	at := int64(headerLen)
	if p.ixia {
		at = headerLenIxia
	}
	p.records(at)
	return nil
}

// records continues with the next packet's header, or ends.
func (p *Parser) records(at int64) {
	p.start = at
	p.want(atRecord, at, recordLen)
	if at == p.size {
		p.need = 0
	}
}

// record reads a packet's header.
func (p *Parser) record(b []byte) (found Packet, ok bool, err error) {
	found = Packet{
		Offset: p.place + recordLen + int64(p.Extra), Len: p.u32(b[8:]), Orig: p.u32(b[12:]), Link: p.link,
		Time: uint64(p.u32(b))*1e9 + uint64(p.u32(b[4:]))*p.fraction, Timed: true,
	}
	if p.swap == swapAlways || p.swap == swapEither && found.Len > found.Orig {
		found.Len, found.Orig = found.Orig, found.Len
	}
	switch {
	case found.Len > MaxLen:
		return found, false, p.bad(errLength)
	case int64(found.Len) > p.size-found.Offset:
		return found, false, p.bad(ErrCut)
	}
	p.records(found.Offset + int64(found.Len))
	found.Len = min(found.Len, found.Orig) // bytes after the packet do not belong to it
	return found, true, nil
}
