package wire

// Parse reads the envelope of a packet of length bytes. frame has the first of them: all, or the
// first buffer of a packet in several buffers, which must have all headers. Bytes beyond UDP's
// length are padding. e is valid only if the result is WellFormed. Parse does not keep frame.
//
// Parse does not check the UDP checksum: the ICRC covers the packet.
func (e *Envelope) Parse(frame []byte, length int) Malformed {
	*e = Envelope{}
	ethertype, m := e.parseEthernet(frame)
	if m != WellFormed {
		return m
	}
	packet, length := frame[e.Network:], length-e.Network
	switch ethertype {
	case typeIPv4:
		return e.parseIPv4(packet, length)
	case typeIPv6:
		return e.parseIPv6(packet, length)
	}
	return NotRoCE
}

// parseEthernet reads the Ethernet header and the tags, and returns the type after them.
func (e *Envelope) parseEthernet(frame []byte) (ethertype uint16, m Malformed) {
	if len(frame) < ethernetBytes {
		return 0, FrameShort
	}
	e.DestinationMAC, e.SourceMAC = [6]byte(frame), [6]byte(frame[6:])
	ethertype, e.Network = be.Uint16(frame[12:]), ethernetBytes
	for i := 0; isTag(ethertype); i++ {
		if i == MaxTags {
			return 0, VLANDepth
		}
		if len(frame) < e.Network+tagBytes {
			return 0, FrameShort
		}
		e.Tags[i] = Tag{ethertype, be.Uint16(frame[e.Network:])}
		ethertype = be.Uint16(frame[e.Network+2:])
		e.Network += tagBytes
	}
	return ethertype, WellFormed
}

func isTag(ethertype uint16) bool {
	return ethertype == 0x8100 || ethertype == 0x88a8 || ethertype == 0x9100
}

// parseUDP reads the UDP header after the IP header. room is the length of the UDP header and
// everything after it, according to IP.
func (e *Envelope) parseUDP(packet []byte, ip, room int) Malformed {
	udp := packet[ip : ip+udpBytes]
	n := int(be.Uint16(udp[4:]))
	switch {
	case be.Uint16(udp[2:]) != Port:
		return NotRoCE
	case n < udpBytes+minTransport || n > room:
		return UDPLength
	}
	e.SourcePort = be.Uint16(udp)
	e.Transport, e.Length = e.Network+ip+udpBytes, n-udpBytes
	return WellFormed
}
