package main

import "testing"

// TestZone: the zone of a link-local address stays, without which nothing can be connected.
func TestZone(t *testing.T) {
	for _, host := range []string{"fe80::1%lo", "::1", "127.0.0.1"} {
		if a, err := resolve(t.Context(), host); err != nil || a.String() != host {
			t.Errorf("%s is taken for %v: %v", host, a, err)
		}
	}
}
