package filter

import (
	"net/netip"
	"slices"

	"github.com/unifiedd/unifiedd/internal/need"
)

// Needs returns properties of every packet that the expression accepts, as far as they are known.
// It allocates; the caller owns the result.
func (e *Expr) Needs() need.Need {
	if e.All() || shifts(e.root, true) {
		return need.Need{}
	}
	return e.root.needs()
}

// shifts reports whether a test reads inside a payload or after a tag that may be missing, and not
// in the outermost headers.
func shifts(n *node, condition bool) bool {
	if n.op == opTest {
		return n.moves == inside || n.moves == overTag && !condition
	}
	return slices.ContainsFunc(n.kids, func(k *node) bool { return shifts(k, condition && n.op == opAnd) })
}

func (n *node) needs() need.Need {
	switch n.op {
	case opTest:
		return n.need
	case opAnd:
		return need.Both(n.kidsNeed()...)
	case opOr:
		return need.Either(n.kidsNeed()...)
	}
	return need.Need{}
}

func (n *node) kidsNeed() (all []need.Need) {
	for _, k := range n.kids {
		all = append(all, k.needs())
	}
	return all
}

// maxPortNeeds is the longest range of ports that Needs splits into single ports.
const maxPortNeeds = 64

// portNeed returns the need of a test of ports.
func portNeed(proto, low, high int) need.Need {
	if high-low >= maxPortNeeds {
		return need.Need{}
	}
	var ports []need.Need
	for p := low; p <= high; p++ {
		ports = append(ports, need.Need{Kind: need.Port, Number: uint16(p)})
	}
	one := ports[0]
	if len(ports) > 1 {
		one = need.Either(ports...)
	}
	if proto == anyNumber {
		return need.Both(one)
	}
	return need.Both(one, protocolNeed(proto))
}

// addressNeed returns the need of a test of a host.
func addressNeed(prefix netip.Prefix) need.Need {
	if !prefix.IsSingleIP() {
		return need.Need{}
	}
	return need.Need{Kind: need.Address, Address: prefix.Addr()}
}

func protocolNeed(number int) need.Need {
	return need.Need{Kind: need.Protocol, Number: uint16(number)}
}

// linkNeed returns the need of a test of the link layer's payload. It is empty for a protocol that
// can be expressed in other ways than by an ethertype.
func linkNeed(number int) need.Need {
	if number < etherLeast || number == etherATALK || number == etherAARP {
		return need.Need{}
	}
	return need.Need{Kind: need.EtherType, Number: uint16(number)}
}

// wordNeed returns the need of a protocol without a value.
func wordNeed(word string) need.Need {
	if n, ok := etherProtocols[word]; ok {
		return linkNeed(n)
	}
	if n, ok := ipProtocols[word]; ok {
		return protocolNeed(n)
	}
	return need.Need{}
}
