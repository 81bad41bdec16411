package stream

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/fifo"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// pathHello returns the hello of a connection that is one of several of a session.
func pathHello(session uint64, path uint32) protocol.Hello {
	h := hello(session)
	h.Capabilities = protocol.WithPath(path)
	return h
}

// secondSide is the side of senders at the second switch.
func (g *pathRig) secondSide(t *testing.T) *side {
	s := *g.near
	s.TB, s.at, s.ns.IP = t, g.near.more[0], g.near.moreIP[0]
	return &s
}

func TestSeveralPaths(t *testing.T) {
	g := newPathRig(t)
	for _, c := range []struct {
		name string
		f    func(*testing.T, *severalRig)
	}{
		{"Order", testEarlyOrder},
		{"Idle", testIdlePath},
		{"PathEnds", testEarlyPathEnds},
		{"AllEnd", testEarlyAllEnd},
		{"SamePath", testSamePath},
		{"OnlyConnection", testOnlyConnection},
		{"Number", testPathNumber},
		{"FarAhead", testFarAhead},
		{"Bounded", testEarlyBounded},
		{"Rejected", testEarlyRejected},
		{"Restart", testRestartAll},
	} {
		t.Run(c.name, func(t *testing.T) {
			far, near := *g.far, *g.near
			far.TB, near.TB = t, t
			config := receiverConfig()
			config.Others = far.more
			config.Peers = 2
			k := far.newSink(config, 2*config.Peers*config.Window)
			c.f(t, &severalRig{sink: k, near: &near, second: g.secondSide(t)})
		})
	}
}

// severalRig is a receiver at two devices, and the sides of raw peers that come to each.
type severalRig struct {
	*sink
	near, second *side
	dialed       []*raw
}

// dials connects a path of a session: number 0 at the first device, number 1 at the second.
func (g *severalRig) dials(session uint64, path uint32) *raw {
	g.Helper()
	from, to := g.near, g.address
	if path == 1 {
		from, to = g.second, g.others[0]
	}
	p := from.dial(to, pathHello(session, path))
	g.dialed = append(g.dialed, p)
	return p
}

// wait waits until so returns true. The paths send lost packets again meanwhile.
func (g *severalRig) wait(what string, so func() bool) {
	g.Helper()
	testenv.Wait(g, 20*time.Second, what, func() bool {
		for _, p := range g.dialed {
			p.poll()
		}
		return so()
	})
}

// brings sends messages over a path.
func (p *raw) brings(sequences ...uint64) {
	p.Helper()
	for _, n := range sequences {
		p.post(p.message(n, payload(n, 100)))
	}
}

// early waits until so many messages have come before their turn.
func (g *severalRig) early(n uint64) {
	g.Helper()
	g.wait("messages before their turn", func() bool { return g.stats().Early == n })
}

// awaitAck waits until a path has heard an acknowledgement.
func (p *raw) awaitAck(sequence uint64) {
	p.Helper()
	p.await("an acknowledgement", func() bool { return p.acked == sequence })
}

// allPosted waits until all frames are receives.
func (g *severalRig) allPosted() {
	g.Helper()
	g.wait("all frames to be receives", func() bool { return g.stats().Posted == int64(g.frames) })
}

// testEarlyOrder: messages that come over two paths are passed on in the order of their sequences, and acknowledged over
// both paths. A message that comes again is dropped, also before its turn.
func testEarlyOrder(t *testing.T, g *severalRig) {
	a, b := g.dials(1, 0), g.dials(1, 1)
	b.brings(3, 2, 5)
	g.early(3)
	a.brings(5) // again
	g.wait("the replay", func() bool { return g.stats().Replays == 1 })
	if n := g.stats().Messages; n != 0 {
		t.Errorf("%d messages were passed on before the first", n)
	}
	a.brings(1)
	a.awaitAck(3)
	b.awaitAck(3)
	a.brings(6)
	g.early(4)
	b.brings(4)
	a.awaitAck(6)
	b.awaitAck(6)
	g.got(6)
	g.wait("the counters", func() bool {
		s := g.stats()
		return s.Sessions[0].Sequence == 6 && s.Sessions[0].State == "connected" && s.Early == 4 && g.r.StatsAt(0).Messages == 2 && g.r.StatsAt(1).Messages == 4
	})
	g.allPosted()
}

// testIdlePath: a path that brings nothing gets credits and acknowledgements as the session goes on, so that it can go on
// at once when the other one fails.
func testIdlePath(t *testing.T, g *severalRig) {
	g.on(func() { g.silent = true })
	idle, b := g.dials(1, 0), g.dials(1, 1)
	for n := uint64(1); n <= 50; n++ {
		b.await("credit", func() bool { return b.limit >= n })
		b.brings(n)
	}
	g.got(50)
	idle.await("credits", func() bool { return idle.limit > 50 })
	g.on(func() { g.r.Acknowledge(0, 50, 50); g.silent = false })
	b.awaitAck(50)
	idle.awaitAck(50)
	idle.brings(51)
	g.wait("the last message", func() (all bool) { g.on(func() { all = g.messages == 51 }); return all })
}

// testEarlyPathEnds: what has come over a path that has ended waits on while another path is connected.
func testEarlyPathEnds(t *testing.T, g *severalRig) {
	a, b := g.dials(1, 0), g.dials(1, 1)
	b.brings(2, 3)
	g.early(2)
	g.must(b.conn.Close())
	g.wait("the path to be gone", func() (gone bool) {
		g.on(func() { gone = len(g.r.others[0].peers) == 0 })
		return gone
	})
	if s := g.stats().Sessions[0]; s.State != "connected" || s.Cause != nil {
		t.Errorf("with the other path the session is %+v", s)
	}
	a.brings(1)
	a.awaitAck(3)
	if again := g.dials(1, 1); again.remote.Next != 4 {
		t.Errorf("the path is to go on with %d", again.remote.Next)
	}
}

// testEarlyAllEnd: when no path is left, what waits is dropped, and the sender is asked for it again.
func testEarlyAllEnd(t *testing.T, g *severalRig) {
	a, b := g.dials(1, 0), g.dials(1, 1)
	a.brings(1)
	a.awaitAck(1)
	a.brings(4)
	b.brings(3)
	g.early(2)
	g.must(a.conn.Close())
	g.must(b.conn.Close())
	g.allPosted()
	a = g.dials(1, 0)
	if a.remote.Next != 2 {
		t.Errorf("the session is to go on with %d", a.remote.Next)
	}
	a.brings(2, 3, 4)
	a.awaitAck(4)
	g.got(4)
}

// testSamePath: a connection that claims a path replaces the one that has it, which hears why, and no other one.
func testSamePath(t *testing.T, g *severalRig) {
	a, b := g.dials(1, 0), g.dials(1, 1)
	again := g.dials(1, 1)
	if _, text := b.ended(); text != errReplaced.Error() {
		t.Errorf("the replaced one hears %q", text)
	}
	again.brings(2)
	a.brings(1)
	a.awaitAck(2)
	again.awaitAck(2)
}

// testOnlyConnection: a connection that is not one of several replaces all of the session, and is replaced by one of them.
func testOnlyConnection(t *testing.T, g *severalRig) {
	a, b := g.dials(1, 0), g.dials(1, 1)
	b.brings(2)
	g.early(1)
	only := g.near.dial(g.address, hello(1))
	for _, p := range []*raw{a, b} {
		if _, text := p.ended(); text != errReplaced.Error() {
			t.Errorf("a replaced one hears %q", text)
		}
	}
	if only.remote.Next != 1 || only.remote.Capabilities&protocol.CapabilityPaths != 0 {
		t.Errorf("it is told %+v", only.remote)
	}
	only.brings(2) // a gap, which it may not have
	if _, text := only.ended(); text != protocol.BadSequence.Error() {
		t.Errorf("with a gap it hears %q", text)
	}
	b = g.dials(1, 1)
	b.brings(1)
	b.awaitAck(1)
}

// testPathNumber: a path whose number no session has is refused.
func testPathNumber(t *testing.T, g *severalRig) {
	for _, number := range []uint32{protocol.MaxPaths, 1<<32 - 1} {
		_, err := g.near.tryDial(g.address, pathHello(1, number), connect.Config{})
		if connect.ReasonOf(err) != connect.ReasonRefused || !strings.Contains(err.Error(), "at most 4 paths, from number 0 on") {
			t.Errorf("path %d: %v", number, err)
		}
	}
	last := g.near.dial(g.address, pathHello(1, protocol.MaxPaths-1))
	last.brings(1)
	last.awaitAck(1)
}

// testFarAhead: a message beyond the limit of its own path is refused, whatever the others may send. They go on.
func testFarAhead(t *testing.T, g *severalRig) {
	a := g.dials(1, 0)
	for _, sequence := range []uint64{1 << 40, 1<<64 - 1, 17} {
		b := g.dials(1, 1)
		b.brings(sequence)
		if _, text := b.ended(); text != protocol.BeyondCredit.Error() {
			t.Errorf("for message %d it hears %q", sequence, text)
		}
	}
	a.brings(1)
	a.awaitAck(1)
	g.allPosted()
}

// testEarlyBounded: a sender that leaves out a message uses its window alone. Others, and the message itself, find
// receives, and all come back.
func testEarlyBounded(t *testing.T, g *severalRig) {
	a, b := g.dials(1, 0), g.dials(1, 1)
	for n := uint64(2); n <= 16; n++ {
		[]*raw{a, b}[n%2].brings(n)
	}
	g.early(15)
	good, other := g.near.dial(g.address, hello(2)), g.second.dial(g.others[0], hello(3))
	good.send(40, 100)
	other.send(40, 100)
	good.awaitAcked()
	other.awaitAcked()
	if a.poll(); a.limit != 16 || b.limit != 16 {
		t.Errorf("the limits are %d and %d", a.limit, b.limit)
	}
	b.brings(1)
	a.awaitAck(16)
	g.allPosted()
}

// testRestartAll: a restart ends the peers at all devices, and drops what has arrived over each. All frames become
// receives again, at no device more than it has room for. The sessions go on where the flow says.
func testRestartAll(t *testing.T, g *severalRig) {
	a, b := g.near.dial(g.address, hello(2)), g.second.dial(g.others[0], hello(3))
	waits, arrived, restarted := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go g.on(func() {
		defer close(restarted)
		close(waits)
		<-arrived // the worker receives nothing until then
		const each = 5
		for end := time.Now().Add(testenv.Within(20 * time.Second)); g.r.ready.Len() < 2*each && time.Now().Before(end); {
			for _, o := range g.r.all() {
				o.fill(2 * each)
			}
		}
		if n := g.r.ready.Len(); n != 2*each {
			t.Errorf("%d messages have arrived", n)
		}
		g.r.Restart(protocol.NotLeader)
		total := 0
		for i, o := range g.r.all() {
			if n := o.posted + o.back.Len(); n > o.depth {
				t.Errorf("device %d has %d receives and frames for them, and room for %d", i, n, o.depth)
			} else {
				total += n
			}
		}
		if n := g.r.ready.Len(); n != 0 || total != g.frames {
			t.Errorf("%d messages are left, and %d of %d frames", n, total, g.frames)
		}
	})
	<-waits
	for n := uint64(1); n <= 5; n++ {
		for _, p := range []*raw{a, b} {
			p.post(p.message(n, []byte("dropped")))
		}
	}
	close(arrived)
	<-restarted
	for _, p := range []*raw{a, b} {
		if _, text := p.ended(); text != protocol.NotLeader.Error() {
			t.Errorf("a peer hears %q", text)
		}
	}
	g.allPosted()
	for i, p := range []*raw{g.near.dial(g.address, hello(2)), g.second.dial(g.others[0], hello(3))} {
		if p.remote.Next != 1 {
			t.Errorf("session %d is to go on with %d, and none of its messages was taken", 2+i, p.remote.Next)
		}
	}
}

// testEarlyRejected: when the flow refuses a message, what waits after it is dropped, and all paths hear why.
func testEarlyRejected(t *testing.T, g *severalRig) {
	g.on(func() {
		g.looks = func(f umem.Frame) {
			d, _ := protocol.ParseData(g.region.Bytes(f))
			if d.Sequence == 2 {
				g.r.Reject(g.region.Side(f).Queue, 2, protocol.Busy)
			}
		}
	})
	a, b := g.dials(1, 0), g.dials(1, 1)
	b.brings(4)
	g.early(1)
	a.brings(1, 2)
	for _, p := range []*raw{a, b} {
		if _, text := p.ended(); text != protocol.Busy.Error() {
			t.Errorf("a path hears %q", text)
		}
	}
	g.allPosted()
	if s := g.stats(); s.Refused[protocol.Busy] != 1 {
		t.Errorf("it is counted %d times", s.Refused[protocol.Busy])
	}
	if a = g.dials(1, 0); a.remote.Next != 2 {
		t.Errorf("the session is to go on with %d", a.remote.Next)
	}
}

// TestEarly: messages come over paths in any order that credits allow, and paths come and go. Each message is passed on
// once and in order, and each device keeps as many receives as it has promised.
func TestEarly(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	defer region.Close()
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 9).Draw(t, "window")
		m := newEarlyModel(region, window)
		t.Repeat(map[string]func(*rapid.T){
			"attach": func(t *rapid.T) { m.attach(rapid.IntRange(0, 3).Draw(t, "path")) },
			"end":    func(t *rapid.T) { m.end(rapid.IntRange(0, 3).Draw(t, "path")) },
			"reject": func(*rapid.T) { m.reject() },
			"supply": func(t *rapid.T) { m.supply(rapid.IntRange(0, 1).Draw(t, "device")) },
			"poll": func(*rapid.T) {
				for _, r := range m.devices {
					r.freed = false
					r.grant()
				}
			},
			"bring": func(t *rapid.T) {
				m.bring(t, rapid.IntRange(0, 3).Draw(t, "path"), uint64(rapid.IntRange(1, window+2).Draw(t, "ahead")))
			},
			"": m.check,
		})
	})
}

// earlyModel is a receiver at two devices without ports, whose only session has up to four paths.
type earlyModel struct {
	devices [2]*Receiver
	session *session
	paths   [4]*peer
	passed  uint64 // sequence of the last message that was passed on
}

func newEarlyModel(region *umem.Region, window int) *earlyModel {
	m := &earlyModel{session: &session{id: 1}}
	table := &sessions{list: []*session{m.session}}
	ready := fifo.New[umem.Frame](64)
	for i := range m.devices {
		r := &Receiver{config: ReceiverConfig{Window: window, Peers: 4}, region: region, slots: make([]slot, 4), news: newSlotSet(4), wants: newSlotSet(4),
			ready: &ready, back: fifo.New[umem.Frame](64), sessions: table}
		m.devices[i] = r
	}
	return m
}

// attach connects a path, at one device or the other.
func (m *earlyModel) attach(path int) {
	if m.paths[path] != nil {
		return
	}
	r, s := m.devices[path%2], m.session
	p := &peer{session: s, several: true, path: uint32(path), at: r, slot: path, state: connected, limit: s.taken, over: make(chan struct{}), said: make(chan struct{})}
	s.add(p, r.config.Window)
	m.paths[path], r.slots[path].peer, r.peers = p, p, append(r.peers, p)
	r.wants.add(path)
	r.grant()
}

// end ends a path as detach does.
func (m *earlyModel) end(path int) {
	p := m.paths[path]
	if p == nil {
		return
	}
	r := p.at
	if p.state.takes() {
		r.takeBack(p)
	}
	p.state = gone
	m.paths[path], r.slots[path].peer = nil, nil
	r.peers = without2(r.peers, p)
	m.session.remove(p)
	m.again()
}

func without2(all []*peer, p *peer) (rest []*peer) {
	for _, one := range all {
		if one != p {
			rest = append(rest, one)
		}
	}
	return rest
}

// reject refuses the last message that was passed on. All paths end.
func (m *earlyModel) reject() {
	if m.passed == 0 {
		return
	}
	m.devices[0].Reject(0, m.passed, protocol.Busy)
	m.passed--
	m.again()
}

// again makes the frames of dropped messages receives again.
func (m *earlyModel) again() {
	for _, r := range m.devices {
		n := r.back.Len()
		r.back.Skip(n)
		r.posted += n
		r.available += n
		r.grant()
	}
}

// supply gives a device a receive, as long as it has few.
func (m *earlyModel) supply(device int) {
	if r := m.devices[device]; r.posted+r.early < 24 {
		r.posted++
		r.available++
		r.grant()
	}
}

// bring brings a message over a path. It must be taken if the path's limit allows it and it has not come yet.
func (m *earlyModel) bring(t *rapid.T, path int, ahead uint64) {
	p, s := m.paths[path], m.session
	sequence := s.taken + ahead
	if p == nil || !p.state.takes() || sequence > p.limit {
		return
	}
	r := p.at
	if r.posted == 0 {
		t.Fatalf("message %d may come over path %d, and no receive is there", sequence, path)
	}
	r.posted--
	r.available--
	came := s.early.has(sequence) && ahead > 1
	if took := r.admit(p, &protocol.Data{Session: 1, Sequence: sequence}, umem.Frame{Len: uint32(sequence)}); took == came {
		t.Fatalf("message %d: taken %v, and it had come before: %v", sequence, took, came)
	}
	if came {
		r.back.Push(umem.Frame{})
	}
	m.again()
	var out [1]umem.Frame
	for r.ready.Read(out[:]) == 1 {
		if m.passed++; uint64(out[0].Len) != m.passed {
			t.Fatalf("message %d is passed on after %d", out[0].Len, m.passed-1)
		}
	}
}

// check checks the account of receives, and that a path with credits may bring the next message.
func (m *earlyModel) check(t *rapid.T) {
	s := m.session
	if m.passed != s.taken {
		t.Fatalf("%d messages are passed on, and %d were", m.passed, s.taken)
	}
	early := 0
	for i, r := range m.devices {
		promised := 0
		for _, p := range r.peers {
			if !p.state.takes() {
				continue
			}
			kept := 0
			for n := s.taken + 1; n <= p.limit; n++ {
				if !s.early.has(n) {
					kept++
				}
			}
			if promised += kept; kept != p.promised() || p.grantedLimit() > uint64(r.config.Window) || p.grantedLimit() > 0 && kept == 0 {
				t.Fatalf("path %d has %d credits after message %d, and %d receives are kept for it, not %d", p.path, p.grantedLimit(), s.taken, p.promised(), kept)
			}
			if p.grantedLimit() == 0 && r.available > 0 && r.wants.next(0, 4) < 0 {
				t.Fatalf("path %d has no credit, and wants none of %d", p.path, r.available)
			}
		}
		if early += r.early; r.available+promised != r.posted || r.available < 0 || r.early < 0 {
			t.Fatalf("device %d has %d receives: %d promised and %d free", i, r.posted, promised, r.available)
		}
	}
	if s.early != nil && s.early.has(s.taken+1) {
		t.Fatalf("message %d waits, and it is its turn", s.taken+1)
	}
	if count := 0; s.early != nil {
		for _, one := range s.early.items {
			if one.at != nil {
				count++
			}
		}
		if count != s.early.count || early != count {
			t.Fatalf("%d messages wait, %d are counted, and %d by device", count, s.early.count, early)
		}
	} else if early != 0 {
		t.Fatalf("%d messages wait for nobody", early)
	}
}
