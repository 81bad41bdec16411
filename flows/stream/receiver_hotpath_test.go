package stream

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// testAllocations: a round with messages, acknowledgements and progress does not allocate.
func testAllocations(t *testing.T, g *rig) {
	c := receiverConfig()
	k := g.far.newSink(c, c.Peers*c.Window)
	p := g.near.dial(k.address, hello(1))
	k.on(func() { k.rounds = nil }) // only round polls the receiver, on its worker's thread
	var buf [batchSize]umem.Frame
	last, now := uint64(0), time.Now()
	round := func() {
		n := k.r.Recv(buf[:])
		for _, f := range buf[:n] {
			last++
			k.r.Acknowledge(k.region.Side(f).Queue, last, last)
		}
		k.r.Supply(buf[:n])
		testenv.Check(t, k.r.Poll(now))
	}
	for range 10 {
		for range 8 {
			p.post(p.message(p.next, payload(p.next, 100)))
			p.next++
		}
		k.on(func() {
			if n := testenv.AllocsPerRun(t, 20, round); n > 0 {
				t.Errorf("a round allocates %v times", n)
			}
		})
		testenv.Wait(t, 20*time.Second, "acknowledgements", func() bool { p.poll(); k.on(round); return p.acked == p.next-1 })
	}
}

// testLateCredits: a peer that connects while there are no receives gets no credits. It gets some
// when there are receives again.
func testLateCredits(t *testing.T, g *rig) {
	c := receiverConfig()
	c.Peers = 2
	k := g.far.newSink(c, 1)
	k.on(func() { k.hold = true })
	p := g.near.dial(k.address, hello(1))
	p.send(1, 10)
	k.got(1)
	q, err := g.near.tryDial(k.address, hello(2), connect.Config{})
	if err != nil || q.remote.Window != 0 {
		t.Fatalf("the window is %d, %v", q.remote.Window, err)
	}
	k.must(p.conn.Close())
	k.state(1, "disconnected")
	k.release()
	q.send(5, 10)
	q.awaitAcked()
}
