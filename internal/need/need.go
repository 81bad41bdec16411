// Package need has the type that filters and indexes share: the properties that a packet needs to
// be accepted.
package need

import "net/netip"

// Kind is the kind of a [Need].
type Kind uint8

const (
	Nothing   Kind = iota // nothing is known to be needed
	All                   // all of the kids
	Any                   // one of the kids at least
	Address               // as an IPv4, IPv6, ARP or RARP address at either end
	Port                  // Number, as a port of TCP, UDP or SCTP at either end
	Protocol              // Number, as an IP protocol, that of an IPv6 extension header too
	EtherType             // Number, before or after VLAN tags
	VLAN                  // Number, of a VLAN tag
)

// Need is a property that a packet must have for an expression to accept it, as far as that is known without
// the packet, so that an index can look for it. A packet with the property may still be rejected. The zero
// value needs nothing.
type Need struct {
	Kind    Kind
	Kids    []Need // of All and Any
	Address netip.Addr
	Number  uint16
}

// Both joins needs that must all be met. Kids that are such lists are merged into one list.
func Both(kids ...Need) Need {
	all := Need{Kind: All}
	for _, k := range kids {
		switch k.Kind {
		case Nothing:
		case All:
			all.Kids = append(all.Kids, k.Kids...)
		default:
			all.Kids = append(all.Kids, k)
		}
	}
	if len(all.Kids) == 0 {
		return Need{}
	}
	return all
}

// Either joins alternatives: if one needs nothing, nothing is needed.
func Either(kids ...Need) Need {
	for _, k := range kids {
		if k.Kind == Nothing {
			return Need{}
		}
	}
	return Need{Kind: Any, Kids: kids}
}
