package main

import (
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/flows/status"
)

// printStates prints the states that programs and peers read.
func printStates(w io.Writer, all []status.SharedState) {
	for i := range all {
		s := &all[i]
		has := fmt.Sprintf("%d of %d objects of %d bytes", s.Entries, s.Objects, s.Room)
		if s.Keys > 0 {
			has = fmt.Sprintf("%d of %d keys", s.Entries, s.Keys)
		}
		if s.Words > 0 {
			fmt.Fprintf(w, "state %s\t%d words, which peers change\n", s.Name, s.Words)
		} else {
			fmt.Fprintf(w, "state %s\t%s; at position %d: %d updates, refused: %s\n", s.Name, has, s.Position, s.Updates, nonzero(s.Refused))
		}
		for _, r := range s.Readers {
			fmt.Fprintf(w, "  reader\t%s, which is %s\n", r.Program, here(r.Reading))
		}
		if r := s.Remote; r != nil {
			fmt.Fprintf(w, "  peers\t%d now at %s over %s, %d so far; refused: %s; failed handshakes: %s\n", r.Readers, r.Listen, r.Device, r.Accepted, nonzero(r.Refused), nonzero(r.Handshakes))
			if r.Error != "" {
				fmt.Fprintf(w, "  error\t%s\n", r.Error)
			}
		}
	}
}
