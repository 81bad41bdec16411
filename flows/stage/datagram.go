package stage

import "net/netip"

// Datagram is where a packet's UDP payload is, and whom it is for.
type Datagram struct {
	Payload     []byte
	Destination netip.Addr
	Port        uint16 // of the destination
}

// UDP finds the payload of a whole UDP datagram in a packet that begins with the Ethernet header. It returns Changed,
// or the reason why there is none in these bytes. The packet may have any bytes. UDP does not allocate.
func UDP(p []byte) (Datagram, Reason) {
	v := look(p)
	at, why := v.place(p, 0, 0)
	if why != Changed {
		return Datagram{}, why
	}
	end := v.transport + int(be.Uint16(p[v.transport+4:]))
	switch {
	case v.fragmented(p):
		return Datagram{}, LaterFragment
	case end < at || end > v.end:
		return Datagram{}, Malformed
	case max(end, v.end) > len(p):
		return Datagram{}, OtherFrame
	}
	d := Datagram{Payload: p[at:end:end], Port: be.Uint16(p[v.transport+2:])}
	if v.v6 {
		d.Destination = netip.AddrFrom16([16]byte(p[v.ip+24:]))
	} else {
		d.Destination = netip.AddrFrom4([4]byte(p[v.ip+16:]))
	}
	return d, Changed
}

// fragmented reports whether more fragments follow a packet of IPv4 that is not a later one itself. Those of IPv6
// have a length in UDP that goes beyond the packet.
func (v *view) fragmented(p []byte) bool { return !v.v6 && be.Uint16(p[v.ip+6:])&0x2000 != 0 }
