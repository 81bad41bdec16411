package doctor

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/numa"
)

func TestOnNode(t *testing.T) {
	zero, one := 0, 1
	for _, c := range []struct {
		at     int
		region *int
		state  State
		text   string
	}{
		{numa.Unknown, &one, OK, "of no node"}, {0, nil, OK, "0"}, {0, &zero, OK, "0"}, {0, &one, Warn, "0, but the region is on node 1: every packet crosses between them -> move"},
	} {
		expect(t, "a device", onNode("NUMA node", c.at, c.region, "move"), c.state, c.text)
	}
}

func TestRegionNode(t *testing.T) {
	n := needs{Config: config.Default(), given: true}
	expect(t, "not set", n.regionNode([]int{0, 1}), OK, "0-1; region.node is not set")
	node := 1
	n.Region.Node = &node
	expect(t, "there", n.regionNode([]int{0, 1}), OK, "the region on 1")
	expect(t, "not there", n.regionNode([]int{0, 2}), Fail, "set region.node to one of them")
}
