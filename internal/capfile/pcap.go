package capfile

// Of pcap: what files begin with, and how long that and the header of a packet is.
const (
	magicMicro    = 0xa1b2c3d4
	magicNano     = 0xa1b23c4d
	magicModified = 0xa1b2cd34 // of a patch to libpcap with longer headers

	headerLen = 24
	recordLen = 16
)

// header reads what a pcap file begins with. The upper bits of the link type are of something else.
func (p *Parser) header(b []byte) error {
	if major := p.u16(b[4:]); major != 2 {
		return p.bad(errVersion)
	}
	p.link = p.u32(b[20:]) & 0xffff
	p.records(headerLen)
	return nil
}

// records goes on with a packet's header, or ends.
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
		Offset: p.place + recordLen, Len: p.u32(b[8:]), Orig: p.u32(b[12:]), Link: p.link,
		Time: uint64(p.u32(b))*1e9 + uint64(p.u32(b[4:]))*p.fraction, Timed: true,
	}
	switch {
	case found.Len > MaxLen:
		return found, false, p.bad(errLength)
	case int64(found.Len) > p.size-found.Offset:
		return found, false, p.bad(errCut)
	}
	p.records(found.Offset + int64(found.Len))
	return found, true, nil
}
