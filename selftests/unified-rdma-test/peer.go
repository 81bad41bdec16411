package main

import "fmt"

// The programs of rdma-core that may be on the other side.
const (
	pingpongPeer = "pingpong"
	rpingPeer    = "rping"
)

var peers = []string{pingpongPeer, rpingPeer}

// checkPeer refuses options that the other program does not have, and sets its defaults.
func (o *options) checkPeer(given map[string]bool) error {
	for _, name := range []string{"op", "test", "depth", "inline", "seed", "keep", "cert", "beyond"} {
		if given[name] {
			return fmt.Errorf("-%s and -peer do not go together", name)
		}
	}
	if o.disk != noDisk {
		return fmt.Errorf("BLOCK_DEV %s: -peer needs no disk; give - for it", o.disk)
	}
	if o.peer == rpingPeer {
		return o.fillRping(given)
	}
	return o.fillPingpong(given)
}
