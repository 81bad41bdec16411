package stage

const (
	ipv4Header = 20
	ipv6Header = 40
	mostNext   = 8 // extension headers that follow skips
)

// Options of IPv4, with those that route (RFC 791), and headers of IPv6 that other headers follow (RFC 8200).
const (
	optionEnd    = 0
	optionNone   = 1
	looseRoute   = 131
	strictRoute  = 137
	hopByHop     = 0
	routing      = 43
	fragment     = 44
	destinations = 60
)

// lookIPv4 parses bytes that begin with a header of IPv4. The places it finds count from there.
func (v *view) lookIPv4(p []byte) Reason {
	if len(p) < ipv4Header {
		return Truncated
	}
	header, total := int(p[0]&15)*4, int(be.Uint16(p[2:]))
	switch {
	case p[0]>>4 != 4 || header < ipv4Header || total < header:
		return Malformed
	case len(p) < header:
		return Truncated
	}
	v.end = total
	v.proto = p[9]
	v.sealed = v.proto == protoAH
	v.routed = sourceRouted(p[ipv4Header:header])
	v.later = be.Uint16(p[6:])&0x1fff != 0
	if !v.later {
		v.transport = header
	}
	return Changed
}

// sourceRouted looks for a route among options.
func sourceRouted(options []byte) bool {
	for len(options) > 0 && options[0] != optionEnd {
		n := 1
		switch kind := options[0]; {
		case kind == looseRoute || kind == strictRoute:
			return true
		case kind != optionNone:
			if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
				return false
			}
			n = int(options[1])
		}
		options = options[n:]
	}
	return false
}

// lookIPv6 parses bytes that begin with a header of IPv6. The places it finds count from there.
func (v *view) lookIPv6(p []byte) Reason {
	switch {
	case len(p) < ipv6Header:
		return Truncated
	case p[0]>>4 != 6:
		return Malformed
	}
	total := ipv6Header + int(be.Uint16(p[4:]))
	if total == ipv6Header { // nothing, or a jumbogram
		total = len(p)
	}
	v.end = total
	return v.follow(p, p[6])
}

// follow skips the extension headers.
func (v *view) follow(p []byte, next uint8) Reason {
	at := ipv6Header
	for range mostNext {
		switch next {
		case hopByHop, routing, destinations, fragment, protoAH:
		default:
			v.proto, v.transport = next, at
			return Changed
		}
		if at+8 > v.end {
			return Malformed
		}
		if at+8 > len(p) {
			return Truncated
		}
		header := p[at:]
		n := int(header[1])*8 + 8
		switch next {
		case fragment:
			n = 8
			v.later = be.Uint16(header[2:])&0xfff8 != 0
		case protoAH:
			n = int(header[1])*4 + 8
			v.sealed = true
		case routing:
			v.routed = v.routed || header[3] > 0 // segments are left
		}
		next = header[0]
		if at += n; v.later {
			v.proto = next
			return Changed
		}
	}
	return Malformed
}
