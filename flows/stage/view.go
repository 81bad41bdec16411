package stage

// Numbers of IEEE 802.3 and 802.1Q, and of IANA's registries.
const (
	etherHeader = 14
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
	typeVLAN    = 0x8100
	typeQinQ    = 0x88a8
	typeOldQinQ = 0x9100
	mostTags    = 4 // that lookLink skips

	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoAH      = 51
	protoICMPv6  = 58
	protoUDPLite = 136
)

// view says where the headers of a packet are.
type view struct {
	link    Reason // what is wrong up to the EtherType
	network Reason // what is wrong with the header of IP
	carried Reason // what is wrong with the header that IP carries

	tag       int // where the number of the outermost VLAN is; 0: none
	ip        int // where the header of IP begins; 0: none
	transport int // where the transport header begins; 0: none, or not in this fragment
	field     int // where the transport's checksum is; 0: none that covers the addresses
	end       int // of the IP packet, which may be beyond the end of the bytes
	proto     uint8
	v6        bool
	later     bool // a fragment other than the first
	routed    bool // its final destination is not in the IP header
	sealed    bool // protected by an authentication header
}

// look finds the headers. It reads nothing outside of the packet.
func look(p []byte) view {
	var v view
	kind, at := v.lookLink(p)
	if v.link != Changed {
		v.network, v.carried = v.link, v.link
		return v
	}
	v.network = NotIP
	switch kind {
	case typeIPv4:
		v.ip, v.network = at, v.lookIPv4(p[at:])
	case typeIPv6:
		v.ip, v.v6, v.network = at, true, v.lookIPv6(p[at:])
	}
	if v.network != Changed {
		v.carried = v.network
		return v
	}
	v.end += at
	if v.transport > 0 {
		v.transport += at
	}
	v.carried = v.lookTransport(p)
	return v
}

// lookLink finds the outermost tag, the EtherType behind the tags, and where the next header begins.
func (v *view) lookLink(p []byte) (kind uint16, at int) {
	for at = etherHeader; at <= etherHeader+4*mostTags; at += 4 {
		if len(p) < at {
			v.link = Truncated
			return 0, 0
		}
		kind = be.Uint16(p[at-2:])
		if kind != typeVLAN && kind != typeQinQ && kind != typeOldQinQ {
			return kind, at
		}
		if v.tag == 0 {
			v.tag = at
		}
	}
	return 0, at // more tags than there are uses for
}

// needs returns how many bytes of a transport header there are up to the end of its checksum, which is in the
// last two; 0: no checksum covers the addresses.
func needs(proto uint8, v6 bool) int {
	switch proto {
	case protoTCP:
		return 18
	case protoUDP, protoUDPLite, protoDCCP:
		return 8
	case protoICMPv6:
		if v6 {
			return 4
		}
	}
	return 0
}

// lookTransport finds the checksum that covers the addresses.
func (v *view) lookTransport(p []byte) Reason {
	n := needs(v.proto, v.v6)
	switch {
	case v.transport == 0 || n == 0:
		return Changed
	case v.transport+n > v.end:
		return Malformed
	case v.transport+n > len(p):
		return Truncated
	}
	v.field = v.transport + n - 2
	if v.proto == protoUDP || v.proto == protoUDPLite || v.proto == protoDCCP {
		v.field = v.transport + 6
	}
	return Changed
}

// adjust changes the transport's checksum, if there is one, by a delta.
func (v *view) adjust(p []byte, d uint32) {
	switch {
	case v.field == 0:
	case v.proto == protoUDP:
		adjustUDP(p[v.field:], d)
	default:
		adjust(p[v.field:], d)
	}
}
