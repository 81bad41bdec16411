package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// activePair opens a receiver at both devices, and a sender that uses both paths at the same time. change may change the
// receiver's configuration.
func (g *pathRig) activePair(t *testing.T, frames int, change func(*ReceiverConfig)) (*taker, *source) {
	t.Helper()
	far, near := *g.far, *g.near
	far.TB, near.TB = t, t
	c := receiverConfig()
	c.Others = far.more
	if change != nil {
		change(&c)
	}
	k := far.newTaker(c, frames)
	s := senderConfig(k.address)
	s.Device, s.Active = "first", true
	s.Paths = []Path{{Device: "second", Endpoint: near.more[0], Address: k.others[0]}}
	return k, near.newSource(s)
}

// onBoth waits until both paths are connected.
func (k *source) onBoth() SenderStats {
	k.Helper()
	return k.stats("both paths", func(s SenderStats) bool {
		return s.State == SenderConnected && s.Paths[0].State == PathConnected && s.Paths[1].State == PathConnected
	})
}

func TestActivePaths(t *testing.T) {
	g := newPathRig(t)
	t.Run("Both", func(t *testing.T) { testActiveBoth(t, g) })
	t.Run("FewFrames", func(t *testing.T) { testActiveFewFrames(t, g) })
	t.Run("Fails", func(t *testing.T) { testActiveFails(t, g) })
	t.Run("Silent", func(t *testing.T) { testActiveSilent(t, g) })
	t.Run("AllFail", func(t *testing.T) { testActiveAllFail(t, g) })
	t.Run("Flaps", func(t *testing.T) { testActiveFlaps(t, g) })
	t.Run("Abandon", func(t *testing.T) { testActiveAbandon(t, g) })
	t.Run("OneDevice", func(t *testing.T) { testActiveOneDevice(t, g) })
	t.Run("Elsewhere", func(t *testing.T) { testActiveElsewhere(t, g) })
	t.Run("Impostors", func(t *testing.T) { testActiveImpostors(t, g) })
	t.Run("Single", func(t *testing.T) { testActiveSingle(t, g) })
	t.Run("Allocations", func(t *testing.T) { testActiveAllocations(t, g) })
	t.Run("Rate", func(t *testing.T) { testActiveRate(t, g) })
}

// testActiveBoth: messages go over both paths, and arrive in order.
func testActiveBoth(t *testing.T, g *pathRig) {
	k, p := g.activePair(t, 128, nil)
	p.onBoth()
	p.more(3000)
	p.await()
	k.got(3000)
	k.whole(1)
	s, r := p.s.Stats(), k.stats()
	if s.Single != "" || s.Sessions != 0 || s.Acknowledged != 3000 || s.Paths[0].Messages+s.Paths[1].Messages != s.Posted || s.Paths[1].Messages < 500 || !s.undisturbed(3000) {
		t.Errorf("the sender: %+v", s)
	}
	if first, second := k.r.StatsAt(0).Messages, k.r.StatsAt(1).Messages; r.Messages != 3000 || first+second != 3000 || second < 500 || r.Replays > s.Resent || r.Sessions[0].Messages != 3000 {
		t.Errorf("the receiver has %d messages of the first path, %d of the second, in all %+v", first, second, r)
	}
	t.Logf("%d messages came before their turn", r.Early)
}

// testActiveFewFrames: with fewer receives than a window for each path, messages that wait for their turn do not use the
// receives that others need.
func testActiveFewFrames(t *testing.T, g *pathRig) {
	k, p := g.activePair(t, 4, func(c *ReceiverConfig) { c.Peers = 1 })
	p.onBoth()
	p.more(2000)
	p.await()
	k.got(2000)
	k.whole(1)
	if s := p.s.Stats(); s.Paths[0].Messages == 0 || s.Paths[1].Messages == 0 || !s.undisturbed(2000) {
		t.Errorf("the sender: %+v", s)
	}
}

// undisturbed reports whether each of n messages was sent once, unless a path has failed: on a busy machine that can be.
func (s *SenderStats) undisturbed(n uint64) bool {
	return s.Posted == n && s.Resent == 0 || s.Paths[0].Failures+s.Paths[1].Failures > 0
}

// testActiveFails: when one of both paths fails under traffic, messages go on over the other one, and over both when it is
// well again.
func testActiveFails(t *testing.T, g *pathRig) {
	k, p := g.activePair(t, 128, nil)
	p.onBoth()
	total := uint64(0)
	for failing := range 2 {
		mend := g.cut(t, failing)
		began := time.Now()
		p.more(1000)
		s := p.stats("the path to fail", func(s SenderStats) bool {
			return s.Paths[failing].State == PathFailed && s.Paths[1-failing].State == PathConnected && s.State == SenderConnected
		})
		t.Logf("path %d was left after %v: %s", failing, time.Since(began), s.Paths[failing].Cause)
		p.await()
		mend()
		p.onBoth()
		before := p.s.Stats().Paths[failing].Messages
		p.more(1000)
		p.await()
		if s = p.s.Stats(); s.Paths[failing].Messages == before {
			t.Errorf("no message went over the path that is well again: %+v", s)
		}
		total += 2000
	}
	k.got(int(total))
	k.whole(1)
	if s := p.s.Stats(); s.Sessions != 0 || s.Acknowledged != total || s.Dropped != 0 || s.Resent == 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
}

// testActiveAllFail: when both paths fail, the session goes on where the receiver is.
func testActiveAllFail(t *testing.T, g *pathRig) {
	k, p := g.activePair(t, 128, nil)
	p.onBoth()
	mends := []func(){g.cut(t, 0), g.cut(t, 1)}
	p.more(2000)
	p.stats("both paths to fail", func(s SenderStats) bool {
		return s.State != SenderConnected && s.Paths[0].State == PathFailed && s.Paths[1].State == PathFailed
	})
	for _, mend := range mends {
		mend()
	}
	p.onBoth()
	p.await()
	k.got(2000)
	k.whole(1)
	if s := p.s.Stats(); s.Sessions != 0 || s.Acknowledged != 2000 || s.Dropped != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
}

// testActiveFlaps: while the paths come and go in turn, each message arrives once and in order.
func testActiveFlaps(t *testing.T, g *pathRig) {
	testenv.Long(t, "Fails and AllFail have paths that go and come back")
	k, p := g.activePair(t, 128, nil)
	p.onBoth()
	total := uint64(0)
	for i := range 6 {
		mend := g.cut(t, i%2)
		p.more(2000)
		time.Sleep(500 * time.Millisecond)
		mend()
		p.more(2000)
		total += 4000
		time.Sleep(500 * time.Millisecond)
	}
	p.await()
	k.got(int(total))
	k.whole(1)
	s := p.s.Stats()
	t.Logf("%d messages again, %d of them replays, paths %+v", s.Resent, k.stats().Replays, s.Paths)
	if s.Acknowledged != total || s.Dropped != 0 || s.Sessions != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
}

// testActiveAbandon: a sender gives up its messages over both paths, and goes on with a new session.
func testActiveAbandon(t *testing.T, g *pathRig) {
	k, p := g.activePair(t, 128, nil)
	p.onBoth()
	k.on(func() { k.silent = true })
	p.more(40)
	k.got(40)
	p.on(func() { p.s.Abandon() })
	p.await()
	k.on(func() { k.silent = false })
	p.onBoth()
	p.more(100)
	p.await()
	k.got(140)
	s := p.s.Stats()
	gone := uint64(0)
	p.on(func() { gone = p.gone })
	if gone != 40 || s.Dropped != 40 || s.Sessions != 1 || s.Acknowledged != 100 {
		t.Errorf("%d were given up: %+v", gone, s)
	}
}

// testActiveOneDevice: both paths may lead to the same device of the receiver. Each takes the place of a client there.
func testActiveOneDevice(t *testing.T, g *pathRig) {
	far, near := *g.far, *g.near
	far.TB, near.TB = t, t
	k := far.newTaker(receiverConfig(), 64)
	s := senderConfig(k.address)
	s.Device, s.Active = "first", true
	s.Paths = []Path{{Device: "the same", Endpoint: near.at, Address: k.address}}
	p := near.newSource(s)
	p.onBoth()
	p.more(2000)
	p.await()
	k.got(2000)
	k.whole(1)
	if s := p.s.Stats(); s.Paths[0].Messages == 0 || s.Paths[1].Messages == 0 || !s.undisturbed(2000) {
		t.Errorf("the sender: %+v", s)
	}
}

// testActiveElsewhere: a path that leads to another receiver is refused.
func testActiveElsewhere(t *testing.T, g *pathRig) {
	far, near := *g.far, *g.near
	far.TB, near.TB = t, t
	k := far.newTaker(receiverConfig(), 64)
	other := far
	other.at, other.ns.IP = far.more[0], far.moreIP[0]
	wrong := other.newTaker(receiverConfig(), 64)
	s := senderConfig(k.address)
	s.Device, s.Active = "first", true
	s.Paths = []Path{{Device: "second", Endpoint: near.more[0], Address: wrong.address}}
	p := near.newSource(s)
	seen := p.stats("the path to be refused", func(s SenderStats) bool { return s.Paths[1].Failures > 0 })
	if !strings.Contains(seen.Paths[1].Cause, "is not the receiver that the other paths lead to") {
		t.Errorf("the second path: %+v", seen.Paths[1])
	}
	p.more(1000)
	p.await()
	k.got(1000)
	k.whole(1)
	if s := p.s.Stats(); s.Paths[1].Messages != 0 || wrong.stats().Messages != 0 || s.Sessions != 0 {
		t.Errorf("the sender: %+v", s)
	}
}

// testActiveImpostors: a sender with several links rejects an invalid hello or progress message over any of them.
func testActiveImpostors(t *testing.T, g *pathRig) {
	for _, c := range []struct {
		want string
		say  func(p *protocol.Progress) []byte
	}{
		{"acknowledges message 4", func(p *protocol.Progress) []byte { p.Sequence = 4; return put(p) }},
		{"another session", func(p *protocol.Progress) []byte { p.Session++; return put(p) }},
		{"does not begin as one", func(*protocol.Progress) []byte { return make([]byte, protocol.HeaderLen) }},
		{"payload's checksum", func(p *protocol.Progress) []byte { p.Status = protocol.BadPayload; return put(p) }},
		{"closed the connection", func(p *protocol.Progress) []byte { p.Limit = 1<<64 - 1; return put(p) }},
	} {
		far, near := *g.far, *g.near
		far.TB, near.TB = t, t
		m := far.newImpostor()
		s := senderConfig(m.listener.Addr().String())
		s.Device, s.Active = "first", true
		s.Paths = []Path{{Device: "second", Endpoint: near.more[0], Address: near.moreIP[0].String() + ":1"}}
		p := near.newSource(s)
		m.answer(func(h *protocol.Hello) []byte {
			if h.Capabilities&^protocol.CapabilityWrite != protocol.WithPath(0) {
				t.Errorf("the sender's hello: %+v", h)
			}
			h.Capabilities = protocol.WithPath(7)
			return m.told(h)
		})
		m.post(c.say(&protocol.Progress{Session: m.session, Limit: 8}))
		m.await("it to be sent", func() bool { return m.under == 0 })
		m.must(m.conn.Close())
		seen := p.stats("the sender to see it", func(s SenderStats) bool { return s.Paths[0].Failures > 0 })
		if cause := seen.Paths[0].Cause; !strings.Contains(cause, c.want) || seen.Acknowledged != 0 {
			t.Errorf("the cause is %q, want one with %q", cause, c.want)
		}
		p.endRun()
	}
}

// testActiveSingle: with a receiver that does not restore the order, a sender uses one path, says why, and goes over the
// other one when that fails.
func testActiveSingle(t *testing.T, g *pathRig) {
	writes := *g.far
	writes.writes = true
	for _, c := range []struct {
		why    string
		far    *side
		change func(*ReceiverConfig)
	}{
		{singleOrder, g.far, func(c *ReceiverConfig) { c.Unacknowledged = c.Window }},
		{singleWrites, &writes, nil},
	} {
		k, p := (&pathRig{rig: &rig{TB: t, near: g.near, far: c.far}, ends: g.ends, cut: g.cut}).activePair(t, 128, c.change)
		p.more(500)
		p.await()
		if s := p.atPath(0); s.Single != c.why || s.Paths[1].State != PathStandby {
			t.Errorf("with one path: %+v", s)
		}
		mend := g.cut(t, 0)
		p.more(500)
		p.atPath(1)
		p.await()
		mend()
		p.atPath(0)
		k.got(1000)
		k.whole(1)
		p.endRun()
	}
}

// testActiveAllocations: a round over two paths does not allocate at either side.
func testActiveAllocations(t *testing.T, g *pathRig) {
	k, p := g.activePair(t, 128, nil)
	k.on(func() { k.tokens = make([]uint64, 0, 1<<20) })
	p.onBoth()
	p.on(func() { p.rounds = nil }) // only the rounds below poll either, on the thread of its worker
	k.on(func() { k.rounds = nil })
	text := payload(1, 300)
	message := []umem.Frame{{Addr: p.frames[0].Addr, Len: 300}}
	copy(p.region.Bytes(message[0]), text)
	sum, token, done := protocol.Checksum(text), uint64(1), 0
	var results [64]Result
	sends := func() {
		for range 8 {
			if p.s.Send(message, 300, sum, firstStamp+token, token) {
				token += 256 // the payload repeats after 256 tokens
			}
		}
		testenv.Check(t, p.s.Kick())
		testenv.Check(t, p.s.Poll(time.Now()))
		done += p.s.Done(results[:])
	}
	receives := func() { k.round() }
	for range 10 {
		p.on(func() {
			if n := testenv.AllocsPerRun(t, 20, sends); n > 0 {
				t.Errorf("a round of the sender allocates %v times", n)
			}
		})
		k.on(func() {
			if n := testenv.AllocsPerRun(t, 20, receives); n > 0 {
				t.Errorf("a round of the receiver allocates %v times", n)
			}
		})
		testenv.Wait(t, 20*time.Second, "acknowledgements", func() (all bool) {
			k.on(receives)
			p.on(func() {
				testenv.Check(t, p.s.Poll(time.Now()))
				done += p.s.Done(results[:])
				all = p.s.Queued() == 0
			})
			return all
		})
	}
	if s := p.s.Stats(); done < 100 || s.Acknowledged != uint64(done) || s.Paths[0].Messages == 0 || s.Paths[1].Messages == 0 {
		t.Errorf("%d messages are told of: %+v", done, s)
	}
}

// testActiveRate: over two links of the same rate, messages go at least 1.7 times as fast as over one of them.
func testActiveRate(t *testing.T, g *pathRig) {
	testenv.Long(t, "the rate of a link needs seconds")
	for _, ends := range g.ends {
		defer ends[1].Shape(t, 10_000_000)()
	}
	const count = 2000
	rate := func(active bool) float64 {
		far, near := *g.far, *g.near
		far.TB, near.TB = t, t
		c := receiverConfig()
		c.Others, c.Peers, c.Window, c.Message = far.more, 1, 128, 3000 // a link has work for some time while this machine has other work
		k := far.newTaker(c, 256)
		s := senderConfig(k.address)
		s.Depth, s.Message, s.Active = 512, 3000, active
		s.Paths = []Path{{Device: "second", Endpoint: near.more[0], Address: k.others[0]}}
		p := near.newSource(s)
		if p.stats("a connection", connectedNow); active {
			p.onBoth()
		}
		began := time.Now()
		p.more(count)
		p.await()
		took := time.Since(began)
		k.got(count)
		k.whole(1)
		st := p.s.Stats()
		t.Logf("active %v: %v, %d messages over the first path and %d over the second, %d again", active, took, st.Paths[0].Messages, st.Paths[1].Messages, st.Resent)
		p.endRun()
		return count / took.Seconds()
	}
	for range 5 { // the machine may be busy
		one, two := rate(false), rate(true)
		t.Logf("%.0f messages a second over one link, %.0f over two: %.2f", one, two, two/one)
		if two >= 1.7*one {
			return
		}
	}
	t.Error("two links are not 1.7 times as fast as one")
}
