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

// TestRelieve: what is kept back from one call of Relieve to the next is given, and not what came between them.
func TestRelieve(t *testing.T) {
	w := newWorld(t, 1, Config{Hold: 4})
	a, _ := w.pair(options{depth: 8})
	from, to := w.ends[0], w.ends[1]
	message := func(n int) {
		for i := range n {
			send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Write, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 64))
			w.run(20 * time.Microsecond)
		}
	}
	relieve := func(what string, want bool) {
		t.Helper()
		before := to.Count(AcksSent)
		if got := to.Relieve(); got != want {
			t.Errorf("%s: Relieve says %v", what, got)
		}
		w.run(20 * time.Microsecond)
		if sent := to.Count(AcksSent) > before; sent != want {
			t.Errorf("%s: acknowledged: %v", what, sent)
		}
	}
	relieve("nothing is kept back", false)
	message(firstTry + 2)
	relieve("two are kept back since just now", false)
	message(4)
	relieve("those are given, others kept back", false)
	relieve("and the same still", true)
	if to.Holding() || len(from.done) != firstTry+6 {
		t.Errorf("%d completed in the end", len(from.done))
	}
	message(1)
	relieve("not tried again so soon", false)
}
