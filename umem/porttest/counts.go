package porttest

import (
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// checkCounts calls every verb with nothing to do, with frames inside and one frame at a time, and
// checks all records after each call.
func checkCounts(t testing.TB, open Opener) {
	g := newRig(t, open)
	g.checkEmptySlices()
	if n := g.reap(Spare); n != 0 {
		g.Fatalf("Reap gave %d frames of a port to which none were sent", n)
	}
	if n := g.recv(Spare); n != 0 {
		g.Fatalf("Recv gave %d frames of a port to which none were supplied", n)
	}
	g.audit()
	for range 2 * Slots / 16 {
		g.oneByOne()
	}
	g.finish()
}

// checkEmptySlices calls the verbs with slices of no frames.
func (g *rig) checkEmptySlices() {
	g.Helper()
	for _, none := range [][]umem.Frame{nil, {}} {
		for verb, n := range map[string]int{
			"Supply": g.Receiver.Supply(none), "Recv": g.Receiver.Recv(none),
			"Send": g.Sender.Send(none), "Reap": g.Sender.Reap(none),
		} {
			if n != 0 {
				g.Fatalf("%s returned %d for an empty slice", verb, n)
			}
		}
	}
}

// oneByOne passes one message, taking one frame per call.
func (g *rig) oneByOne() {
	g.Helper()
	g.post(g.compose())
	g.audit()
	g.singly()
	if g.Stored {
		g.supplyAll(g.request(g.stored[len(g.stored)-1]))
		g.audit()
		g.singly()
	}
}

// singly waits for everything in flight, with room for one frame per call.
func (g *rig) singly() {
	g.Helper()
	g.kick()
	g.until("wait for frames one by one", func() bool {
		g.checkEmptySlices()
		if g.reap(1)+g.recv(1) > 0 {
			g.audit()
		}
		return g.settled()
	})
}
