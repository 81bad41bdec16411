package main

import (
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/flows/status"
)

// printPaths prints the ways to a peer.
func printPaths(w io.Writer, all []status.Path) {
	for i := range all {
		p := &all[i]
		fmt.Fprintf(w, "  path\t%s to %s: %s%s; taken %d times, %d failures; %d messages\n", p.Device, p.Address, p.State, because(p.Error), p.Connections, p.Failures, p.Messages)
	}
}

// printListenPaths prints the devices over which clients connect.
func printListenPaths(w io.Writer, all []status.ListenPath) {
	for i := range all {
		p := &all[i]
		fmt.Fprintf(w, "  path\t%s, by %s: %d connections made, %d broken; %d messages\n", p.Listen, p.Device, p.Connected, p.Broken, p.Messages)
	}
}
