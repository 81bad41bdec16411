package stream

import "testing"

// TestSenderWrites is TestSender with a receiver that has messages written.
func TestSenderWrites(t *testing.T) {
	g := newRig(t)
	for _, c := range senderParts {
		t.Run(c.name, func(t *testing.T) { c.f(t, g.writing(t)) })
	}
}
