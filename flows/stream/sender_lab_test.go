//go:build lab && verbs && cgo

package stream

import "testing"

// TestSenderVerbs: TestSender passes over a device of libibverbs.
func TestSenderVerbs(t *testing.T) {
	g := newVerbsRig(t)
	for _, c := range senderParts {
		t.Run(c.name, func(t *testing.T) { standsFor(t, c.name); c.f(t, g.with(t)) })
	}
}
