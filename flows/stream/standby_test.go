package stream

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// testSenderStandby: a sender has a connection to a member of a group that does not lead. When that member leads, the
// sender goes on there at once, though the other one still holds its connection, and dials nobody.
func testSenderStandby(t *testing.T, g *rig) {
	const first, then = 100, 200
	leads := make(chan struct{})
	var dialed atomic.Bool
	one := receiverConfig()
	one.Standby = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } // it does not lead again
	a := g.far.newTaker(one, 64)
	two := receiverConfig()
	two.Next = func(uint64, string) (uint64, error) { return first + 1, nil }
	two.Standby = func(ctx context.Context) error {
		select {
		case <-leads:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	two.Permit = func(_ connect.Peer, h protocol.Hello) error {
		if h.Capabilities&protocol.CapabilityStandby == 0 {
			dialed.Store(true)
			return protocol.NotLeader
		}
		return nil
	}
	b := g.far.newTaker(two, 64)
	c := senderConfig(a.address)
	c.Others = []string{b.address}
	p := g.near.newSource(c)
	p.more(first)
	p.await()
	p.stats("a connection that stands by", func(s SenderStats) bool { return s.Standby == 1 })
	b.on(func() {
		if len(b.r.sessions.byID) != 0 {
			t.Error("the session has begun at a member that does not lead")
		}
	})
	before := time.Now()
	close(leads)
	p.stats("the other member", func(s SenderStats) bool { return s.Moves == 1 && s.State == SenderConnected })
	t.Logf("the sender has moved after %v", time.Since(before))
	p.more(then - first)
	p.await()
	s := p.s.Stats()
	if s.Acknowledged != then || s.Moves == 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
	if s.Failures == 0 && dialed.Load() { // on a slow machine a member may seem to hang
		t.Error("the sender has dialed a member that does not lead")
	}
	p.stats("a connection to the first member that stands by", func(s SenderStats) bool { return s.Standby == 1 })
}
