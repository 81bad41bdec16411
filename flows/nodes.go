package flows

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/umem"
)

// placed says where a region is: its bytes on each NUMA node, and the node if there is only one.
type placed struct {
	bytes map[int]uint64
	node  int
}

// locate asks the kernel where a region is. A kernel that does not say has only one node.
func locate(r *umem.Region) placed {
	where, err := r.Placement()
	if err != nil {
		return placed{node: numa.Unknown}
	}
	p := placed{bytes: where, node: numa.Unknown}
	for node := range where {
		if len(where) == 1 {
			p.node = node
		}
	}
	return p
}

// fillNodes adds the NUMA nodes of the flow's ends, and warnings about devices on another node than
// the region.
func fillNodes(s *status.Flow, card, disk int, w *worker.Worker, region int) {
	s.CardNode, s.DiskNode, s.Far = status.Node(card), status.Node(disk), nil
	far(s, "the card "+s.From, card, region)
	far(s, "the disk under "+s.To, disk, region)
	far(s, "worker "+w.Config().Name, w.Node(), region)
}

// far adds a warning if a device is on another node than the region.
func far(s *status.Flow, what string, at, region int) {
	if at != numa.Unknown && region != numa.Unknown && at != region {
		s.Far = append(s.Far, fmt.Sprintf("%s is on NUMA node %d, the region on node %d: every packet crosses between them", what, at, region))
	}
}
