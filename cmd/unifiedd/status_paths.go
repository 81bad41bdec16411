package main

import (
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/flows/status"
)

// printPaths prints the ways to a peer.
func printPaths(w io.Writer, peer *status.Peer) {
	if len(peer.Paths) > 0 {
		fmt.Fprintf(w, "  paths\t%s%s\n", peer.PathMode, because(peer.PathReason))
	}
	for i := range peer.Paths {
		p := &peer.Paths[i]
		fmt.Fprintf(w, "  path\t%s to %s: %s%s; taken %d times, %d failures; %d messages\n", p.Device, p.Address, p.State, because(p.Error), p.Connections, p.Failures, p.Messages)
	}
}

// printGroupPaths prints the ways between the members of a group: of the leader, over which device each follower gets
// records; of a follower, over which they come.
func printGroupPaths(w io.Writer, g *status.Group) {
	if len(g.Paths) > 0 {
		fmt.Fprintf(w, "  paths\t%s\n", g.PathMode)
	}
	for i := range g.Members {
		m := &g.Members[i]
		if m.PathMode != "" && m.PathMode != g.PathMode {
			fmt.Fprintf(w, "  warning\tmember %s has path_mode %s: give all members the same one\n", m.Name, m.PathMode)
		}
		if m.Device != "" {
			fmt.Fprintf(w, "  path\trecords go to %s over %s\n", m.Name, m.Device)
		}
	}
	for i := range g.Paths {
		if p := &g.Paths[i]; g.State == "following" {
			fmt.Fprintf(w, "  path\trecords come from %s over %s: %s%s; taken %d times, %d failures\n", p.Address, p.Device, p.State, because(p.Error), p.Connections, p.Failures)
		}
	}
}

// printListenPaths prints the devices over which clients connect.
func printListenPaths(w io.Writer, all []status.ListenPath) {
	for i := range all {
		p := &all[i]
		fmt.Fprintf(w, "  path\t%s, by %s: %d connections made, %d broken; %d messages, %d of them before their turn\n", p.Listen, p.Device, p.Connected, p.Broken, p.Messages, p.Early)
	}
}
