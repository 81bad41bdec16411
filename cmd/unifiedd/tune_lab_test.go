package main

import (
	"syscall"
	"testing"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/card"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTuneCard: tune --apply measures settings of a card with a real driver, leaves it as it says, and has it restored
// when it is killed. An emulated card is slow, so that only some are tried here: TestCards sets all values of all.
func TestTuneCard(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "it measures")
	testenv.HugePages(t, 160<<20)
	p := labenv.Igb(t)
	p.Carry(t)
	traffic(t, p)
	before := settingsOf(t, &p.B)
	if len(before) != 4 {
		t.Fatalf("igb has only %v", before)
	}
	t.Run("killed", func(t *testing.T) { endApplying(t, &p.B, syscall.SIGKILL, "12s", card.Coalescing) })
	t.Run("applied", func(t *testing.T) { applied(t, &p.B, before, 0, forTime("30s"), card.Rings) })
}
