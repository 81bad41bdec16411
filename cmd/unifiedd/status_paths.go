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

// printListenPaths prints the devices over which clients connect.
func printListenPaths(w io.Writer, all []status.ListenPath) {
	for i := range all {
		p := &all[i]
		fmt.Fprintf(w, "  path\t%s, by %s: %d connections made, %d broken; %d messages, %d of them before their turn\n", p.Listen, p.Device, p.Connected, p.Broken, p.Messages, p.Early)
	}
}
