package filter

import (
	"net/netip"
	"slices"

	"github.com/unifiedd/unifiedd/internal/need"
)

// Needs is what a packet must have for the expression to accept it, as far as that can be told. It allocates, and is the caller's.
func (e *Expr) Needs() need.Need {
	if e.All() || shifts(e.root, true) {
		return need.Need{}
	}
	return e.root.needs()
}

// shifts reports whether tests look elsewhere than in the outermost headers behind the tags: inside of a payload, or behind
// a tag that may not be there.
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

// maxPortNeeds is the longest range of ports that is looked for one by one.
const maxPortNeeds = 64

// portNeed is what a test of ports needs.
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

// addressNeed is what a test of a host needs.
func addressNeed(prefix netip.Prefix) need.Need {
	if !prefix.IsSingleIP() {
		return need.Need{}
	}
	return need.Need{Kind: need.Address, Address: prefix.Addr()}
}

func protocolNeed(number int) need.Need {
	return need.Need{Kind: need.Protocol, Number: uint16(number)}
}

// linkNeed is what a test of the link layer's payload needs: nothing where there are other ways to say it than an ethertype.
func linkNeed(number int) need.Need {
	if number < etherLeast || number == etherATALK || number == etherAARP {
		return need.Need{}
	}
	return need.Need{Kind: need.EtherType, Number: uint16(number)}
}

// wordNeed is what a protocol that stands alone needs.
func wordNeed(word string) need.Need {
	if n, ok := etherProtocols[word]; ok {
		return linkNeed(n)
	}
	if n, ok := ipProtocols[word]; ok {
		return protocolNeed(n)
	}
	return need.Need{}
}
