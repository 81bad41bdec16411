package serve

import "github.com/unifiedd/unifiedd/flows/config"

// preferredPaths returns the number of the path that a channel prefers to each peer: 0 is that of the flow's device.
//
// With standby it is the first one. A peer with active prefers that of the device which the fewest others prefer: those
// with standby, and those with active before it in the list. So the peers use all links.
func preferredPaths(to *config.To) []int {
	first, use := make([]int, len(to.Peers)), map[string]int{}
	for i := range to.Peers {
		if to.Peers[i].PathMode != config.PathActive {
			use[to.RDMA]++
		}
	}
	for i := range to.Peers {
		p := &to.Peers[i]
		if p.PathMode != config.PathActive {
			continue
		}
		device := to.RDMA
		for k, one := range p.Paths {
			if use[one.RDMA] < use[device] {
				first[i], device = k+1, one.RDMA
			}
		}
		use[device]++
	}
	return first
}
