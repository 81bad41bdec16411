//go:build verbs && cgo

package stream

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestWritesVerbs: TestWrites, and a part of TestSenderWrites, pass over a device of libibverbs.
func TestWritesVerbs(t *testing.T) {
	labenv.Guest(t)
	g := newVerbsRig(t)
	for _, c := range senderParts {
		if c.name == "One" {
			t.Run(c.name, func(t *testing.T) { standsFor(t, c.name); c.f(t, g.writing(t)) })
		}
	}
	for _, c := range writeParts {
		t.Run(c.name, func(t *testing.T) { standsFor(t, c.name); c.f(t, g.writing(t)) })
	}
}
