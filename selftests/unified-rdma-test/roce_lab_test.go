package main

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestRoCEInGuest: TestRoCE passes on other kernels too. Linux 6.1 sends no packets in several parts.
func TestRoCEInGuest(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "TestRoCE runs outside of the guest")
	p, pair := newRoCE(t, testenv.PairOptions{IPv6: true})
	p.patient = patient
	inSoftware(t, p, pair)
	t.Run("server goes on", func(t *testing.T) { serverGoesOn(t, p) })
}
