package fabrics

import (
	"cmp"
	"slices"
)

// ANAState is how a controller reaches the namespaces of an ANA group (asymmetric namespace access).
type ANAState uint8

// States. A host prefers controllers with ANAOptimized, and sends nothing to one with
// ANAInaccessible.
const (
	ANAOptimized    ANAState = 0x01
	ANANonOptimized ANAState = 0x02
	ANAInaccessible ANAState = 0x03
)

// Each namespace is a group of its own, which has the namespace's number. So the groups of several
// controllers are the same without anybody naming them, and each namespace has a state of its own.
const (
	anaHeaderLen = 16
	anaGroupLen  = 32
	// ANALogLen is the length in bytes of the log page with as many namespaces as can be. The kernel's
	// initiator reads it whole, so that it needs transfers of that length.
	ANALogLen = anaHeaderLen + MaxNamespace*(anaGroupLen+4)
	// anaGroupsOnly asks for groups without the numbers of their namespaces (LSP, RGO).
	anaGroupsOnly = 1 << 0
	// anaTransition is ANATT in seconds. Changes of the state take none, and 0 is not permitted.
	anaTransition = 10
	// anaStates is ANACAP: the states that the controller may report.
	anaStates = 1<<0 | 1<<1 | 1<<2
)

// ANA reports whether controllers of the subsystem report states. Transfers may be too short for
// the log page.
func (s *Subsystem) ANA() bool { return !s.Discovery() && s.Transfer >= ANALogLen }

// Accessible reports whether commands may reach the namespace through this controller.
func (n *Namespace) Accessible() bool { return n.ANA != ANAInaccessible }

// SetANA sets the state of a namespace, and reports whether it was another one. If so, the caller
// calls ANAChanged of each controller of the subsystem.
func (s *Subsystem) SetANA(n *Namespace, to ANAState) bool {
	if n.anaState() == to {
		return false
	}
	n.ANA = to
	n.anaChanges++
	s.ANAChanges++
	return true
}

// anaState returns the state as the log page has it.
func (n *Namespace) anaState() ANAState { return cmp.Or(n.ANA, ANAOptimized) }

// anaPage returns the asymmetric namespace access log page.
func (c *Controller) anaPage(groupsOnly bool) []byte {
	all := slices.Clone(c.Subsystem.Namespaces)
	slices.SortFunc(all, func(x, y *Namespace) int { return cmp.Compare(x.ID, y.ID) })
	b := make([]byte, anaHeaderLen, anaHeaderLen+len(all)*(anaGroupLen+4))
	le.PutUint64(b, c.Subsystem.ANAChanges)
	le.PutUint16(b[8:], uint16(len(all)))
	for _, n := range all {
		group := make([]byte, anaGroupLen, anaGroupLen+4)
		le.PutUint32(group, n.ID)
		le.PutUint64(group[8:], n.anaChanges)
		group[16] = uint8(n.anaState())
		if !groupsOnly {
			le.PutUint32(group[4:], 1)
			group = le.AppendUint32(group, n.ID)
		}
		b = append(b, group...)
	}
	return b
}
