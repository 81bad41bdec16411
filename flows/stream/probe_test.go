package stream

import (
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestProbe: a probe is due if the peer was silent for the whole time between two looks, something was expected at both,
// and none is under way.
func TestProbe(t *testing.T) {
	var p Probe
	for i, step := range []struct{ heard, waits, due bool }{
		{false, true, false}, {false, true, true}, // silent from look to look
		{true, true, false}, {false, true, true},
		{false, false, false}, {false, true, false}, {false, true, true}, // expected since the last look only
	} {
		if step.heard {
			p.Heard()
		}
		if due := p.Due(step.waits); due != step.due {
			t.Errorf("look %d: %v", i, due)
		}
	}
	p.under = true
	if p.Due(true) || p.Places() != 1 {
		t.Error("a second probe is due")
	}
	if id := p.Done(7); id != 7 || p.Places() != 1 {
		t.Errorf("message %d ends a probe", id)
	}
	if id := p.Done(probeID | 8); id != 8 || p.Places() != 0 || !p.Due(true) {
		t.Errorf("the probe after request %d does not end", id)
	}
}

// mute makes a network carry nothing to senders, and returns a function that ends that. In the lab it carries nothing at all.
func (g *pathRig) mute(t *testing.T, number int) (mend func()) {
	t.Helper()
	if g.ends[number] == nil {
		return g.cut(t, number)
	}
	return g.ends[number][0].Lose(t, testenv.ToEnd, 0)
}

// delivered waits until all messages are posted, and the receiver's devices have acknowledged them.
func (k *source) delivered() {
	k.Helper()
	testenv.Wait(k, 20*time.Second, "messages to be delivered", func() (all bool) {
		k.on(func() {
			all = k.sent == k.want && k.s.out.waiting.Len() == 0 && k.s.sent == k.s.out.last && (k.s.spread != nil || k.s.done == k.s.sent)
			for _, l := range k.s.spread.all() {
				all = all && l.pending() == 0
			}
		})
		return all
	})
}

// testPathSilent: when all messages are delivered, and acknowledgements do not come over the path any more, it is left after the
// retries of the device.
func testPathSilent(t *testing.T, g *pathRig) {
	k, p := g.pathPair(t)
	g.testSilent(t, k, p, func() { p.atPath(0) })
}

// testActiveSilent: so is one of several paths at the same time.
func testActiveSilent(t *testing.T, g *pathRig) {
	k, p := g.activePair(t, 128, nil)
	g.testSilent(t, k, p, func() { p.onBoth() })
}

// testSilent makes a receiver take messages without acknowledging them, which costs it no path, and then cuts the first path. back
// waits until that is in use. The machine may be busy, so the shortest of some times counts.
func (g *pathRig) testSilent(t *testing.T, k *taker, p *source, back func()) {
	t.Helper()
	const rounds, messages = 3, 40
	var all []time.Duration
	for round := uint64(1); round <= rounds; round++ {
		back()
		before := p.s.Stats().Paths[0]
		k.on(func() { k.silent = true })
		p.more(messages)
		k.got(int(round) * messages)
		p.delivered()
		s := p.stats("probes", func(s SenderStats) bool { return s.Paths[0].Probes >= before.Probes+3 })
		if s.Paths[0].Failures != before.Failures {
			t.Errorf("a slow receiver costs the path: %+v", s.Paths[0])
		}
		began := time.Now() // the path may be left before mute returns
		mend := g.mute(t, 0)
		s = p.stats("the first path to be left", func(s SenderStats) bool { return s.Paths[0].Left.After(began) })
		all = append(all, s.Paths[0].Left.Sub(began))
		t.Logf("the path was left after %v: %s", all[len(all)-1], s.Paths[0].Cause)
		p.atPath(1)
		k.on(func() {
			k.silent = false
			k.r.Acknowledge(0, round*messages, round*messages)
		})
		p.await()
		mend()
	}
	back()
	k.got(rounds * messages)
	k.whole(1)
	if s := p.s.Stats(); s.Sessions != 0 || s.Acknowledged != rounds*messages || s.Dropped != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
	if least := slices.Min(all); !testing.Short() && least > 1500*time.Millisecond {
		t.Errorf("the path was left after %v at best", least)
	}
}

// testPathUnprobed: a receiver of an earlier release gets no probes, which would end the connection.
func testPathUnprobed(t *testing.T, g *pathRig) {
	far, near := *g.far, *g.near
	far.TB, near.TB = t, t
	m := far.newImpostor()
	s := senderConfig(m.listener.Addr().String())
	s.Method = BySend
	s.Paths = []Path{{Device: "second", Endpoint: near.more[0], Address: near.moreIP[0].String() + ":1"}}
	p := near.newSource(s)
	m.answer(m.told)
	m.post(put(&protocol.Progress{Session: m.session, Limit: 8}))
	p.more(5) // as fit in its receives
	p.delivered()
	time.Sleep(5 * probeEvery)
	if s := p.s.Stats(); s.Paths[0].Probes != 0 || s.Paths[0].Failures != 0 || s.Paths[0].State != PathConnected {
		t.Errorf("the path to it: %+v", s.Paths[0])
	}
	m.must(m.conn.Close())
	p.endRun()
}

// testReads: a receiver answers READs of no bytes, and refuses others.
func testReads(t *testing.T, g *rig) {
	k := g.far.newSink(receiverConfig(), 64)
	good, p := g.near.dial(k.address, hello(1)), g.near.dial(k.address, hello(2))
	if p.remote.Capabilities&protocol.CapabilityProbe == 0 {
		t.Errorf("the receiver takes no probes: %+v", p.remote)
	}
	for range 3 {
		p.request(nil, rdma.SendRequest{Op: rdma.Read})
		p.send(1, 10)
	}
	p.awaitAcked()
	p.await("the READs to be answered", func() bool { return p.under == 0 })
	if p.broken != rdma.Success {
		t.Errorf("a READ of no bytes: %v", p.broken)
	}
	p.request(make([]byte, 64), rdma.SendRequest{Op: rdma.Read, RemoteAddr: g.far.at.Memory.Addr(), RKey: g.far.at.Memory.RKey()})
	testenv.Wait(t, 20*time.Second, "the READ to be refused", func() bool { p.poll(); return p.broken != rdma.Success })
	if p.broken != rdma.RemoteAccess {
		t.Errorf("a READ of the receiver's memory: %v", p.broken)
	}
	k.must(p.conn.Close())
	k.state(2, "disconnected")
	good.send(20, 100)
	good.awaitAcked()
}
