package doctor

import (
	"slices"

	"github.com/unifiedd/unifiedd/internal/numa"
)

// numaNodes checks the machine's nodes, and whether the workers run on the region's node.
func numaNodes(n needs) []Check {
	const name = "NUMA nodes"
	all := numa.Nodes()
	switch len(all) {
	case 0:
		return []Check{ok(name, "one")}
	case 1:
		return []Check{ok(name, "one, number %d", all[0])}
	}
	checks := []Check{n.regionNode(all)}
	for _, w := range n.Workers {
		if w.CPU != nil {
			checks = append(checks, onNode("NUMA node of worker "+w.Name, numa.OfCPU(*w.CPU), n.Region.Node,
				"leave the worker's cpu out, or take one of the region's node"))
		}
	}
	return checks
}

// regionNode checks that the region's node exists.
func (n needs) regionNode(all []int) Check {
	const name = "NUMA nodes"
	switch node := n.Region.Node; {
	case node == nil:
		return ok(name, "%s; region.node is not set, so that the region lies where the kernel puts it: keep card, region, disk and worker on one", ranges(all))
	case !slices.Contains(all, *node):
		return ok(name, "%s, and region.node is %d", ranges(all), *node).as(n.bad()).with("set region.node to one of them")
	default:
		return ok(name, "%s, the region on %d", ranges(all), *node)
	}
}

// diskNode compares the node of the disk under a path with the region's.
func diskNode(path string, n needs) Check {
	return onNode("NUMA node", numa.OfPath(path), n.Region.Node, "set region.node to that node, or use a disk of the region's")
}

// onNode compares the node of a device with the region's.
func onNode(name string, at int, region *int, remedy string) Check {
	switch {
	case at == numa.Unknown:
		return ok(name, "of no node in particular")
	case region != nil && *region != at:
		return warn(name, "%d, but the region is on node %d: every packet crosses between them", at, *region).with("%s", remedy)
	}
	return ok(name, "%d", at)
}
