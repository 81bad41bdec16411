package transport

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestHold: a peer that goes on without acknowledgements gets one for several, once it was tried; nothing is owed after Release; and a
// peer that waits for each is not made to wait again soon.
func TestHold(t *testing.T) {
	w := newWorld(t, 1, Config{Hold: 4})
	a, _ := w.pair(options{depth: 8})
	from, to := w.ends[0], w.ends[1]
	message := func(n int) {
		for i := range n {
			send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Write, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 64))
			w.run(20 * time.Microsecond)
		}
	}
	acks := func(what string, want uint64) {
		t.Helper()
		w.run(20 * time.Microsecond)
		if n := to.Count(AcksSent); n != want {
			t.Errorf("%s: %d acknowledgements, want %d", what, n, want)
		}
	}
	message(firstTry)
	acks("before it is tried", firstTry)
	message(3)
	acks("three are kept back", firstTry)
	message(1 + 3)
	acks("one for four, and three", firstTry+1)
	if !to.Holding() || len(from.done) != firstTry+4 {
		t.Errorf("%d completed before Release", len(from.done))
	}
	to.Release()
	acks("nothing came for a while", firstTry+2)
	if to.Holding() || len(from.done) != firstTry+7 {
		t.Errorf("%d completed after Release", len(from.done))
	}
	message(firstTry)
	acks("one after the other again", 2*firstTry+2)
	message(1)
	to.Release()
	acks("the second try fails", 2*firstTry+3)
	message(2 * firstTry)
	acks("which is not repeated so soon", 4*firstTry+3)
}
