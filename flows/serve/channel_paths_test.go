package serve

import (
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
)

// TestPreferredPaths: the peers of a channel with active paths are spread over the devices.
func TestPreferredPaths(t *testing.T) {
	peer := func(mode config.PathMode, further ...string) (p config.Peer) {
		p.PathMode = mode
		for _, device := range further {
			p.Paths = append(p.Paths, config.Path{RDMA: device})
		}
		return p
	}
	const active, standby, one = config.PathActive, config.PathStandby, ""
	for _, c := range []struct {
		name  string
		peers []config.Peer
		want  []int
	}{
		{"alternate", []config.Peer{peer(active, "b"), peer(active, "b"), peer(active, "b"), peer(active, "b")}, []int{0, 1, 0, 1}},
		{"three devices", []config.Peer{peer(active, "b", "c"), peer(active, "b", "c"), peer(active, "b", "c"), peer(active, "b", "c")}, []int{0, 1, 2, 0}},
		{"another order", []config.Peer{peer(active, "b", "c"), peer(active, "c", "b"), peer(active, "b", "c")}, []int{0, 1, 1}},
		{"standby", []config.Peer{peer(standby, "b"), peer(standby, "b")}, []int{0, 0}},
		{"one path comes later", []config.Peer{peer(active, "b"), peer(one), peer(active, "b")}, []int{1, 0, 0}},
		{"some with standby", []config.Peer{peer(standby, "b"), peer(standby, "b"), peer(active, "b"), peer(active, "b"), peer(active, "b")}, []int{0, 0, 1, 1, 0}},
		{"one device", []config.Peer{peer(active, "a"), peer(active, "a")}, []int{0, 0}},
	} {
		if got := preferredPaths(&config.To{RDMA: "a", Peers: c.peers}); !slices.Equal(got, c.want) {
			t.Errorf("%s: the paths %v are preferred, and not %v", c.name, got, c.want)
		}
	}
}
