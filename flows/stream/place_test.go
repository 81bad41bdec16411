package stream

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// places returns names that a test moves, and a sender's places of these.
func places(t *testing.T, peers ...string) (n *cluster.Names, all []Place) {
	t.Helper()
	n = new(cluster.Names)
	n.SetStatic(nil, true)
	for _, name := range peers {
		p, err := n.Place(name)
		testenv.Must(t, err)
		t.Cleanup(func() { _ = p.Close() })
		all = append(all, p)
	}
	return n, all
}

// testSenderFollows: a sender waits until it is known where its receiver is, stays there while more becomes known, and
// is at another address as soon as the receiver is. Messages that the first one has acknowledged are not sent again.
func testSenderFollows(t *testing.T, g *rig) {
	const first, then = 100, 200
	a, b := g.far.newTaker(receiverConfig(), 64), g.far.newTaker(receiverConfig(), 64)
	n, where := places(t, "storage/log")
	c := senderConfig("")
	c.Places = where
	p := g.near.newSource(c)
	p.stats("an error about the name", func(s SenderStats) bool { return strings.Contains(s.Cause, "no daemon is registered as storage") })
	n.SetStatic([]cluster.Static{{Peer: "storage/log", Address: a.address}}, true)
	p.more(first)
	p.await()
	n.SetStatic([]cluster.Static{{Peer: "storage/log", Address: b.address}, {Peer: "storage/log", Address: a.address}}, true)
	n.SetStatic([]cluster.Static{{Peer: "storage/log", Address: a.address}}, true)
	if s := p.stats("the connection", connectedNow); s.Connections != 1 || s.Followed != 0 || s.Address != a.address {
		t.Errorf("the sender has left an address that its receiver still has: %+v", s)
	}
	n.SetStatic(nil, true) // nothing is known any more
	p.more(1)
	p.await()
	n.SetStatic([]cluster.Static{{Peer: "storage/log", Address: b.address}}, true)
	p.stats("the other address", func(s SenderStats) bool { return s.State == SenderConnected && s.Address == b.address })
	p.more(then - first - 1)
	p.await()
	s := p.s.Stats()
	if s.Acknowledged != then || s.Followed != 1 || s.Dropped != 0 || s.Resent != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
}

// testSenderFollowsGroup: the members of a group are named, and each may move.
func testSenderFollowsGroup(t *testing.T, g *rig) {
	moved := receiverConfig()
	moved.Next = func(uint64, string) (uint64, error) { return 51, nil } // it has what the member had before
	a, b := g.far.newTaker(receiverConfig(), 64), g.far.newTaker(moved, 64)
	n, where := places(t, "one/log", "two/log")
	c := senderConfig("")
	c.Places = where
	n.SetStatic([]cluster.Static{{Peer: "two/log", Address: a.address}}, true) // the first member is not known
	p := g.near.newSource(c)
	p.more(50)
	p.await()
	if s := p.s.Stats(); s.Address != a.address {
		t.Errorf("the sender is at %s", s.Address)
	}
	n.SetStatic([]cluster.Static{{Peer: "two/log", Address: b.address}}, true)
	p.stats("the other address", func(s SenderStats) bool { return s.State == SenderConnected && s.Address == b.address })
	p.more(50)
	p.await()
	if s := p.s.Stats(); s.Forgotten != 0 || s.Sessions != 0 {
		t.Errorf("the session has not gone on: %+v", s)
	}
}
