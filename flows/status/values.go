package status

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// Node converts a NUMA node for a document. It returns nil for an unknown node.
func Node(node int) *int {
	if node == numa.Unknown {
		return nil
	}
	return &node
}

// RefusedBy converts counts of refused messages. The result has all reasons, including those with
// count 0.
func RefusedBy(counted map[protocol.Reason]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for _, reason := range protocol.Reasons() {
		all[reason.String()] = counted[reason]
	}
	return all
}
