package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// senderParts are the tests of a sender. They run on any rig.
var senderParts = []struct {
	name string
	f    func(*testing.T, *rig)
}{
	{"One", testSenderOne},
	{"BeforeReceiver", testSenderBeforeReceiver},
	{"SlowReceiver", testSenderSlowReceiver},
	{"ComesBack", testSenderComesBack},
	{"Silence", testSenderSilence},
	{"QueuePairFails", testSenderQueuePairFails},
	{"LateAcknowledgement", testSenderLateAcknowledgement},
	{"Forgotten", testSenderForgotten},
	{"Ask", testSenderAsk},
	{"Standby", testSenderStandby},
	{"Begins", testSenderBegins},
	{"Follows", testSenderFollows},
	{"FollowsGroup", testSenderFollowsGroup},
	{"Spares", testSenderSpares},
	{"Receives", testSenderReceives},
	{"Drop", testSenderDrop},
	{"Abandon", testSenderAbandon},
	{"Refused", testSenderRefused},
	{"Open", testSenderOpen},
	{"Impostors", testSenderImpostors},
	{"Descriptor", testSenderDescriptor},
	{"Allocations", testSenderAllocations},
}

func TestSender(t *testing.T) {
	g := newRig(t)
	for _, c := range senderParts {
		t.Run(c.name, func(t *testing.T) { c.f(t, g.with(t)) })
	}
}

// testSenderOne: messages of several frames arrive in order, the receiver acknowledges them in
// order, and the sender counts them.
func testSenderOne(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	p := g.near.newSource(senderConfig(k.address))
	const n = 1000
	p.more(n)
	p.await()
	k.got(n)
	k.whole(1)
	s := p.s.Stats()
	if s.State != SenderConnected || s.Cause != "" || s.Connections != 1 || s.Failures != 0 || s.Posted != n || s.Acknowledged != n || s.Resent != 0 || s.Dropped != 0 ||
		s.InFlight != 0 || s.Waiting != 0 || s.Durability != protocol.Durable || s.Latency == nil || s.Latency.Count != n {
		t.Errorf("%+v", s)
	}
	if p.acked != n || p.gone != 0 {
		t.Errorf("message %d was acknowledged last and %d given up", p.acked, p.gone)
	}
}

// testSenderBeforeReceiver: if the receiver starts late, messages wait, up to the depth, and the
// sender reports the cause.
func testSenderBeforeReceiver(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	address := k.address
	k.endServe()
	p := g.near.newSource(senderConfig(address))
	p.more(100)
	s := p.stats("an attempt that fails", func(s SenderStats) bool { return s.Failures >= 3 && s.Waiting == 64 })
	if s.State == SenderConnected || !strings.Contains(s.Cause, "refused") {
		t.Errorf("%+v", s)
	}
	k.serveAt(address)
	p.await()
	k.got(100)
}

// single returns the configuration for a test that counts credits.
func single() ReceiverConfig {
	c := receiverConfig()
	c.Peers = 1
	return c
}

// testSenderSlowReceiver: without credits the sender sends nothing. When credits return it sends
// every message.
func testSenderSlowReceiver(t *testing.T, g *rig) {
	k := g.far.newTaker(single(), 16)
	k.on(func() { k.hold = true })
	p := g.near.newSource(senderConfig(k.address))
	p.more(200)
	k.got(16)
	p.stats("all credits to be used", func(s SenderStats) bool { return s.Credit == 0 && s.Acknowledged == 16 })
	k.release()
	p.await()
	k.got(200)
	k.whole(1)
}

// testSenderComesBack: while messages flow, either side ends the connection several times. Each
// message arrives once.
func testSenderComesBack(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	p := g.near.newSource(senderConfig(k.address))
	address, total := k.address, uint64(0)
	for i := range 4 {
		p.more(500)
		total += 500
		p.stats("some to be acknowledged", func(s SenderStats) bool { return s.Acknowledged > total-500+20 })
		if i%2 == 0 {
			k.endServe()
			k.serveAt(address)
		} else {
			p.on(func() { p.s.fail(protocolError(protocol.BadKind)) })
		}
	}
	p.await()
	k.got(int(total))
	k.whole(1)
	if s := p.s.Stats(); s.Connections < 3 || s.Forgotten != 0 || s.Sessions != 0 || s.Acknowledged != total {
		t.Errorf("%+v", s)
	}
}

// testSenderSilence: the longest silence is the time for which messages wait for a receiver that is away,
// and not the time in which there are none. A worker's clock is that of the beginning of its round, so a silence may
// differ by a round from what the test sees: half of the time for which the test waits is left for that.
func testSenderSilence(t *testing.T, g *rig) {
	const away = 60 * time.Millisecond
	k := g.far.newTaker(receiverConfig(), 64)
	p := g.near.newSource(senderConfig(k.address))
	p.more(10)
	p.await()
	first := p.s.Stats().Silence
	time.Sleep(away)
	from := time.Now()
	p.more(10)
	p.await()
	if now := p.s.Stats().Silence; first <= 0 || now > max(first, time.Since(from))+away/2 {
		t.Errorf("silence %v, and %v of %v after a time without messages", first, now, time.Since(from))
	}
	address := k.address
	k.endServe()
	from = time.Now()
	p.more(10)
	time.Sleep(away)
	k.serveAt(address)
	p.await()
	if now := p.s.Stats().Silence; now < away/2 || now > max(first, time.Since(from))+away/2 {
		t.Errorf("silence %v, and the receiver was away for %v of %v", now, away, time.Since(from))
	}
}

// testSenderQueuePairFails: if the sender's queue pair enters Error, the sender reconnects.
func testSenderQueuePairFails(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	p := g.near.newSource(senderConfig(k.address))
	p.stats("a connection", connectedNow)
	p.on(func() { testenv.Check(t, p.s.link.pair.Modify(errorState())) })
	p.more(300)
	p.await()
	k.got(300)
	k.whole(1)
}

// testSenderLateAcknowledgement: a receiver takes messages and does not acknowledge them before the
// connection ends. After the reconnect the sender does not send them again, and the receiver
// acknowledges them.
func testSenderLateAcknowledgement(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	k.on(func() { k.silent = true })
	p := g.near.newSource(senderConfig(k.address))
	p.more(40)
	k.got(40)
	address := k.address
	k.endServe()
	k.on(func() { k.silent = false; k.r.Acknowledge(0, 40, 1040) })
	k.serveAt(address)
	p.await()
	if s := p.s.Stats(); s.Resent != 0 || s.Acknowledged != 40 {
		t.Errorf("%+v", s)
	}
}

// testSenderForgotten: a receiver starts without the messages that it acknowledged. The sender
// counts them as forgotten and continues in a new session.
func testSenderForgotten(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	p := g.near.newSource(senderConfig(k.address))
	p.more(30)
	p.await()
	address := k.address
	k.endServe()
	k2 := g.far.newTaker(receiverConfig(), 64)
	k2.endServe()
	k2.serveAt(address)
	p.stats("a new session", func(s SenderStats) bool { return s.Sessions == 1 && s.State == SenderConnected })
	if s := p.s.Stats(); s.Forgotten != 30 {
		t.Errorf("%+v", s)
	}
	p.more(50)
	p.await()
	k2.got(50)
	k2.whole(31)
}

// testSenderSpares: with more posted messages than Depth, all arrive and are acknowledged in time.
// Done reports the last ones when the connection ends.
func testSenderSpares(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	c := senderConfig(k.address)
	c.Depth, c.Spares = 4, 24
	p := g.near.newSource(c)
	const n = 1000
	p.more(n)
	k.got(n)
	s := p.stats("all to be acknowledged", func(s SenderStats) bool { return s.Acknowledged == n })
	if s.Posted != n || s.Latency == nil || s.Latency.Count != n {
		t.Errorf("%+v", s)
	}
	p.on(func() {
		if late := p.s.Queued(); s.InFlight != 0 || late >= signalEvery {
			t.Errorf("%d messages are in flight, and %d not told of, with completions for each %d", s.InFlight, late, signalEvery)
		}
	})
	p.endRun()
	p.await()
	k.whole(1)
}

// testSenderReceives: receives of an ended connection that were not posted again are not posted on
// the next connection.
func testSenderReceives(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	p := g.near.newSource(senderConfig(k.address))
	p.more(10)
	p.await()
	p.on(func() {
		for n := range uint64(3) {
			p.s.posts[p.s.heards], p.s.landings[p.s.heards] = p.s.receive(p.s.on, receiveID|n)
			p.s.heards++
		}
		p.s.fail(protocolError(protocol.BadKind))
	})
	p.stats("to come back", func(s SenderStats) bool { return s.Connections == 2 && s.State == SenderConnected })
	p.more(200)
	p.await()
	if s := p.s.Stats(); s.Failures != 1 || s.Acknowledged != 210 {
		t.Errorf("%+v", s)
	}
	k.got(210)
	k.whole(1)
}

// testSenderDrop: the sender can drop messages that were never posted, the oldest first. That
// leaves no gap.
func testSenderDrop(t *testing.T, g *rig) {
	k := g.far.newTaker(single(), 16)
	k.on(func() { k.hold = true })
	p := g.near.newSource(senderConfig(k.address))
	p.more(40)
	k.got(16)
	p.on(func() {
		for want := uint64(17); want <= 20; want++ {
			oldest, ok := p.s.Oldest()
			token, dropped := p.s.Drop()
			if !ok || !dropped || token != want || oldest != want {
				t.Errorf("message %d is dropped, and %d is the oldest; want %d", token, oldest, want)
			}
			p.frames = append(p.frames, p.under[token]...)
			delete(p.under, token)
		}
	})
	k.release()
	p.await()
	k.got(36)
	if s := p.s.Stats(); s.Dropped != 4 || s.Acknowledged != 36 {
		t.Errorf("%+v", s)
	}
}

// testSenderAbandon: Abandon gives up every message, with and without a connection, and a new
// session begins.
func testSenderAbandon(t *testing.T, g *rig) {
	k := g.far.newTaker(single(), 16)
	k.on(func() { k.hold, k.silent = true, true })
	p := g.near.newSource(senderConfig(k.address))
	p.more(40)
	k.got(16)
	p.on(p.s.Abandon)
	p.await()
	s := p.stats("a new session", func(s SenderStats) bool { return s.Sessions == 1 && s.State == SenderConnected })
	if p.gone != 40 || s.Dropped != 40 || s.Acknowledged != 0 {
		t.Errorf("%d were given up: %+v", p.gone, s)
	}
	k.on(func() { k.silent = false })
	k.release()
	address := k.address
	k.endServe()
	p.stats("no connection", func(s SenderStats) bool { return s.State != SenderConnected })
	p.more(10)
	p.stats("messages to wait", func(s SenderStats) bool { return s.Waiting == 10 })
	p.on(p.s.Abandon)
	p.await()
	k.serveAt(address)
	p.more(20)
	p.await()
	if p.gone != 50 {
		t.Errorf("%d were given up", p.gone)
	}
}

// testSenderRefused: a sender does not send to a receiver that does not match its configuration,
// and its status says why.
func testSenderRefused(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	for want, change := range map[string]func(*SenderConfig){
		"1024 bytes at most": func(c *SenderConfig) { c.Message = 2048 },
		"another-one":        func(c *SenderConfig) { c.Flow = "another-one" },
		"lookup":             func(c *SenderConfig) { c.Address = "no.such.host.invalid:1" },
		"missing port":       func(c *SenderConfig) { c.Address = "10.77.0.2" },
		"IPv6 address":       func(c *SenderConfig) { c.Address = "[fd77::2]:1" },
		"uppercase Log":      func(c *SenderConfig) { c.Flow = "uppercase Log" },
	} {
		c := senderConfig(k.address)
		change(&c)
		p := g.near.newSource(c)
		s := p.stats("a refusal", func(s SenderStats) bool { return s.Failures > 0 })
		if !strings.Contains(s.Cause, want) {
			t.Errorf("the cause is %q, want one with %q", s.Cause, want)
		}
		p.endRun()
	}
}

// testSenderOpen: OpenSender refuses an invalid configuration with a clear error, and keeps
// nothing.
func testSenderOpen(t *testing.T, g *rig) {
	l := g.near.newLoop("test")
	for want, change := range map[string]func(*SenderConfig){
		"Endpoint":        func(c *SenderConfig) { c.Endpoint = nil },
		"depth of 100000": func(c *SenderConfig) { c.Depth = 100000 },
		"header alone":    func(c *SenderConfig) { c.Message = 64 },
		"1000 frames":     func(c *SenderConfig) { c.Frames = 1000 },
		"at least one":    func(c *SenderConfig) { c.Frames = -1 },
		"region":          func(c *SenderConfig) { c.Endpoint = g.far.at },
	} {
		c := senderConfig("10.77.0.2:1")
		c.Endpoint, c.Worker = g.near.at, l.hands
		change(&c)
		l.on(func() {
			if s, err := OpenSender(c); s != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want one with %q", err, want)
			}
		})
	}
}

// TestBackoff: the time between attempts doubles, up to five seconds, and has jitter.
func TestBackoff(t *testing.T) {
	var b backoff
	for _, middle := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		middle *= time.Millisecond
		if d := b.wait(); d < middle/2 || d > middle*3/2 {
			t.Errorf("%v is not about %v", d, middle)
		}
	}
}
