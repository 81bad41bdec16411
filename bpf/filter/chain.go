package filter

// maxChain is how many headers are followed, as in unifiedd_chain of unifiedd.bpf.c.
const maxChain = 32

// IPv6 extension headers.
const (
	protoHopOpts = 0
	protoRouting = 43
	protoAH      = 51
	protoNone    = 59
	protoDstOpts = 60
)

// chain finds the protocol behind the headers of an IP packet at k, or stops at the wanted one. It
// does the same as libpcap's code, which takes the length of an authentication header for the place
// of the next header. Not ok: the packet ends first.
func chain(packet []byte, i instr) (proto uint32, ok bool) {
	at := func(offset uint32) uint32 {
		if uint64(offset) >= uint64(len(packet)) || offset > maxOffset {
			ok = false
			return 0
		}
		return uint32(packet[offset])
	}
	ok = true
	x := uint32(40)
	if proto = at(i.k + 6); !i.six {
		proto, x = at(i.k+9), 4*(at(i.k)&15)
	}
	for n := 0; ok && n < maxChain && proto != i.want && proto != protoNone; n++ {
		switch proto {
		case protoHopOpts, protoRouting, protoFragment, protoDstOpts:
			if !i.six {
				return proto, ok
			}
			proto, x = at(x+i.k), x+(at(x+i.k+1)+1)*8
		case protoAH:
			proto, x = at(x+i.k), (at(x+i.k+1)+2)*4
		default:
			return proto, ok
		}
	}
	return proto, ok
}
