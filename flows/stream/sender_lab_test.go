//go:build verbs && cgo

package stream

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestSenderVerbs: TestSender passes over a device of libibverbs.
func TestSenderVerbs(t *testing.T) {
	labenv.Guest(t)
	g := newVerbsRig(t)
	for _, c := range senderParts {
		t.Run(c.name, func(t *testing.T) { standsFor(t, c.name); c.f(t, g.with(t)) })
	}
}
