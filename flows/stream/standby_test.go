package stream

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
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

// testSenderBegins: a sender asks all members of a group at once which one leads. One that hangs, and another one that still
// takes that one for the leader, do not keep it from the one that leads.
func testSenderBegins(t *testing.T, g *rig) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and says nothing
	testenv.Must(t, err)
	defer hangs.Close()
	follows, leads := receiverConfig(), receiverConfig()
	follows.Standby = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	follows.Permit = func(_ connect.Peer, h protocol.Hello) error {
		if h.Capabilities&protocol.CapabilityStandby == 0 {
			return fmt.Errorf("not_leader epoch=7 leader=%s: %w", hangs.Addr(), protocol.NotLeader)
		}
		return nil
	}
	leads.Standby = func(context.Context) error { return nil }
	a, b := g.far.newTaker(follows, 64), g.far.newTaker(leads, 64)
	c := senderConfig(hangs.Addr().String())
	c.Others = []string{a.address, b.address}
	p := g.near.newSource(c)
	p.more(100)
	p.await()
	if s := p.s.Stats(); s.Failures > 0 || s.Connections != 1 {
		t.Errorf("the sender has dialed members one after the other: %+v", s)
	}
}
