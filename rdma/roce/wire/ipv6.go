package wire

import "github.com/unifiedd/unifiedd/rdma"

const flowLabelMask = 1<<20 - 1

// parseIPv6 reads the IPv6 and UDP headers in front of packet, which is length bytes long.
func (e *Envelope) parseIPv6(packet []byte, length int) Malformed {
	if len(packet) < ipv6Bytes+udpBytes {
		return FrameShort
	}
	word, room := be.Uint32(packet), int(be.Uint16(packet[4:]))
	switch {
	case word>>28 != 6:
		return IPVersion
	case packet[6] != protocolUDP:
		return refuseNext(packet[6])
	case room < udpBytes || room > length-ipv6Bytes:
		return IPLength
	}
	e.IPv6 = true
	e.TrafficClass, e.FlowLabel, e.HopLimit = uint8(word>>20), word&flowLabelMask, packet[7]
	e.Source, e.Destination = rdma.GID(packet[8:24]), rdma.GID(packet[24:40])
	if isMapped(&e.Source) || isMapped(&e.Destination) {
		return IPAddress
	}
	return e.parseUDP(packet, ipv6Bytes, room)
}

// refuseNext returns the reason to refuse a next header that is not UDP. The numbers are IANA's
// "IPv6 Extension Header Types".
func refuseNext(header uint8) Malformed {
	switch header {
	case 44:
		return IPFragment
	case 0, 43, 50, 51, 60, 135, 139, 140, 253, 254:
		return IPExtension
	}
	return NotRoCE
}
