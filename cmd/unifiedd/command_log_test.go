package main

import (
	"errors"
	"strings"
	"testing"
)

// TestCommandLog: warnings of a command are lines of plain text. What is less is left out.
func TestCommandLog(t *testing.T) {
	var out strings.Builder
	log := newCommandLog(&out)
	log.Info("nothing to see")
	log.With("flow", "capture").Warn("packets are lost", "lost", 3, "remedy", "")
	log.Error("it ended", "err", errors.New("no room"))
	if want := "unifiedd: warning: packets are lost (flow capture, lost 3)\nunifiedd: error: it ended: no room\n"; out.String() != want {
		t.Errorf("%q, not %q", out.String(), want)
	}
}
