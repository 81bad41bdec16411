package filter

import (
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

// shifts reports whether a test that is no condition of the whole may change where others look, as vlan does in tcpdump.
func shifts(n *node, condition bool) bool {
	if n.op == opTest {
		return n.test.subject == subjectVLAN && !condition
	}
	return slices.ContainsFunc(n.kids, func(k *node) bool { return shifts(k, condition && n.op == opAnd) })
}

func (n *node) needs() need.Need {
	switch n.op {
	case opTest:
		return n.test.needs()
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

// needs is what a test needs.
func (t test) needs() need.Need {
	switch t.subject {
	case subjectEther:
		return need.Need{Kind: need.EtherType, Number: uint16(t.number)}
	case subjectProto:
		return need.Need{Kind: need.Protocol, Number: uint16(t.number)}
	case subjectNet:
		if t.prefix.IsSingleIP() {
			return need.Need{Kind: need.Address, Address: t.prefix.Addr()}
		}
	case subjectPort:
		return t.portNeeds()
	case subjectVLAN:
		if t.number != anyNumber {
			return need.Need{Kind: need.VLAN, Number: uint16(t.number)}
		}
	}
	return need.Need{}
}

// maxPortNeeds is the longest range of ports that is looked for one by one.
const maxPortNeeds = 64

func (t test) portNeeds() need.Need {
	if int(t.high)-int(t.low) >= maxPortNeeds {
		return need.Need{}
	}
	var ports []need.Need
	for p := int(t.low); p <= int(t.high); p++ {
		ports = append(ports, need.Need{Kind: need.Port, Number: uint16(p)})
	}
	if len(ports) == 1 {
		return need.Both(ports[0], t.protocolNeed())
	}
	return need.Both(need.Either(ports...), t.protocolNeed())
}

func (t test) protocolNeed() need.Need {
	if t.number == anyNumber {
		return need.Need{}
	}
	return need.Need{Kind: need.Protocol, Number: uint16(t.number)}
}
