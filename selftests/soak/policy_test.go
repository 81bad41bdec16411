package soak

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// policies maps each policy of a feed's peer to the reason under which it counts the messages that
// a slow peer does not get.
var policies = map[string]string{"drop_newest": "queue_full", "drop_oldest": "oldest", "disconnect": "disconnected", "wait": ""}

// TestFeedPolicies: a feed with one slow and one fast peer counts every packet of the slow peer as
// acknowledged, or as dropped for its policy's reason. With the policy wait the slow peer gets
// every packet. The fast peer always does.
func TestFeedPolicies(t *testing.T) {
	testenv.Long(t, "flows/stream tests each policy")
	testenv.Root(t)
	testenv.HugePages(t, 40<<20)
	w := newWorld(t)
	for policy, reason := range policies {
		t.Run(policy, func(t *testing.T) { w.feed(t, policy, reason) })
	}
}

// fedPackets is larger than the slow peer's queue, so that the policy applies. The queue holds more
// messages than the peer has receives posted. Messages in flight cannot be taken back.
const (
	fedPackets = 500
	fedQueue   = 128
)

func (w *world) feed(t *testing.T, policy, reason string) {
	receiver := func(s *site, lossy bool) *actor {
		return enter(t, s, job{Name: "feed", Kind: "receive", Address: s.at(feedPort), Flow: "feed", Depth: 16, Packets: true, Lossy: lossy})
	}
	quick, slow := receiver(&w.sinks, false), receiver(&w.other, policy != "wait")
	d := daemon.Launch(t, program, &testenv.End{Namespace: w.daemon.Namespace}, t.TempDir(), fmt.Sprintf(`
region: {size: 32MiB, extent: 256KiB, extents: 2}
flows:
  - name: feed
    from: {interface: fed, ring: 1024}
    to: {rdma: "roce:net", queue: %d, peers: [{name: quick, address: %q, flow: feed}, {name: slow, address: %q, flow: feed, policy: %s}]}
`, fedQueue, w.sinks.at(feedPort), w.other.at(feedPort), policy))
	d.Running(t)
	slow.tell(t, "slow", "feed")
	packets := newStream(t, &w.fed, 1000)
	d.Until(t, "packets to be sent", func(*status.Daemon) bool { return packets.sent.Load() >= fedPackets })
	sent := packets.halt()
	slow.tell(t, "fast", "feed")
	s := d.Until(t, "peers to have what they get", func(s *status.Daemon) bool {
		f := &s.Flows[0]
		return f.Packets+sum(f.Dropped) == sent && f.State == status.Running && settled(f)
	})
	f := s.Flows[0]
	d.Terminate(t)
	quick.leave(t)
	slow.leave(t)
	if f.Packets != sent {
		t.Errorf("%d packets were sent, and %d came: %v", sent, f.Packets, f.Dropped)
	}
	for i, a := range []*actor{quick, slow} {
		p, came := f.Sends.Peers[i], a.of("feed")
		lost := uint64(0)
		if i == 1 {
			lost = p.Dropped[reason]
		}
		had := came.Messages // a peer that is disconnected loses acknowledgements
		if policy == "disconnect" && had > p.Acknowledged {
			had = p.Acknowledged
		}
		if p.Offered != sent || p.Acknowledged+lost != sent || sum(p.Dropped) != lost || had != p.Acknowledged || came.Messages+came.Missing+sent-came.Last != sent {
			t.Errorf("%s was offered %d of %d, acknowledged %d and did not get %v; it has %+v", p.Name, p.Offered, sent, p.Acknowledged, p.Dropped, came)
		}
	}
	if lost := sum(f.Sends.Peers[1].Dropped); (lost > 0) != (reason != "") {
		t.Errorf("the slow peer did not get %d packets, with policy %s", lost, policy)
	}
}

// settled reports whether no message waits for a peer or is in flight.
func settled(f *status.Flow) bool {
	for _, p := range f.Sends.Peers {
		if p.Waiting+p.InFlight > 0 {
			return false
		}
	}
	return true
}
