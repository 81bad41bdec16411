package stream

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// sink is a flow that receives messages, checks them and acknowledges them.
type sink struct {
	*loop
	r       *Receiver
	address string
	others  []string // addresses at the other devices
	cancel  context.CancelFunc
	served  chan error
	frames  int // supplied
	stats   func() ReceiverStats

	// The thread's:
	looks    func(umem.Frame)  // called for each message
	hold     bool              // keep the frames
	silent   bool              // acknowledge nothing
	held     []umem.Frame      // kept
	next     map[uint16]uint64 // by session: the next expected sequence
	messages int
	wrong    string
	buf      [batchSize]umem.Frame
}

// receiverConfig returns the configuration of most tests.
func receiverConfig() ReceiverConfig {
	return ReceiverConfig{Name: "test", Flow: "log", Message: 1024, Window: 16, Peers: 4, Landing: 100, Durability: protocol.Durable, Check: true, Events: true}
}

// newSink opens a receiver, supplies it with frames, and serves.
func (s *side) newSink(c ReceiverConfig, frames int) *sink {
	s.Helper()
	k := &sink{loop: s.newLoop("sink"), served: make(chan error, 1), frames: frames, next: map[uint16]uint64{}}
	c.Endpoint, c.Worker, c.Write = s.at, k.hands, s.writes
	k.on(func() {
		var err error
		k.r, err = OpenReceiver(c)
		testenv.Check(s, err)
	})
	if k.r == nil {
		s.FailNow()
	}
	k.stats, k.looks = k.r.Stats, k.look
	s.Cleanup(k.close)
	fs := k.take(frames)
	k.on(func() {
		if n := k.r.Supply(fs); n < frames {
			s.Errorf("%d of %d frames are taken", n, frames)
		}
	})
	k.each(k.round)
	k.serve(connect.Config{})
	return k
}

// serve starts listening.
func (k *sink) serve(c connect.Config) {
	k.Helper()
	var l *connect.Listener
	k.ns.Do(k, func() {
		var err error
		l, err = connect.Listen(context.Background(), k.ns.IP.String()+":0", c)
		k.must(err)
	})
	k.address = l.Addr().String()
	all := []*connect.Listener{l}
	k.ns.Do(k, func() {
		for i := range k.r.config.Others {
			l, err := connect.Listen(context.Background(), k.moreIP[i].String()+":0", c)
			k.must(err)
			all, k.others = append(all, l), append(k.others, l.Addr().String())
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	go func() { k.served <- k.r.ServeAll(ctx, all, k.do) }()
}

// endServe ends serving and waits for it.
func (k *sink) endServe() {
	k.Helper()
	k.cancel()
	select {
	case err := <-k.served:
		k.served <- nil
		k.must(err)
	case <-time.After(testenv.Within(20 * time.Second)):
		k.Fatal("Serve does not return")
	}
}

func (k *sink) close() {
	k.Helper()
	k.endServe()
	k.on(func() {
		k.rounds = nil
		k.round() // frames of the peers that ended last become receives again
		posted, available, rest := 0, 0, k.r.ready.Len()
		for _, r := range append([]*Receiver{k.r}, k.r.others...) {
			posted, available, rest = posted+r.posted, available+r.available, rest+r.back.Len()+len(r.peers)
		}
		if !k.Failed() && (available != posted || posted+len(k.held) != k.frames || rest != 0) {
			k.Errorf("without peers there are %d receives of %d frames, of which %d are held and %d promised to nobody", posted, k.frames, len(k.held), available)
		}
		k.hands.Give(k.held)
		k.held = nil
		testenv.Check(k, k.r.Close())
		if k.wrong != "" {
			k.Error(k.wrong)
		}
	})
}

func (k *sink) round() bool {
	n := k.r.Recv(k.buf[:])
	for _, f := range k.buf[:n] {
		k.looks(f)
	}
	k.messages += n
	if k.hold {
		k.held = append(k.held, k.buf[:n]...)
	} else {
		k.r.Supply(k.buf[:n])
	}
	if err := k.r.Poll(time.Now()); err != nil {
		k.wrong = err.Error()
	}
	return n > 0
}

// look checks a message and acknowledges it.
func (k *sink) look(f umem.Frame) {
	b, session := k.region.Bytes(f), k.region.Side(f).Queue
	d, reason := protocol.ParseData(b)
	want := k.next[session] + 1
	switch {
	case reason != protocol.None:
		k.wrong = reason.Error()
	case d.Sequence != want:
		k.wrong = "a message out of turn"
	case !bytes.Equal(b[protocol.HeaderLen:], payload(want, int(d.Length))):
		k.wrong = "a message with another payload"
	}
	k.next[session] = d.Sequence
	if !k.silent {
		k.r.Acknowledge(session, d.Sequence, 1000+d.Sequence)
	}
}

// release gives the kept frames back to the receiver.
func (k *sink) release() {
	k.on(func() {
		k.hold = false
		k.r.Supply(k.held)
		k.held = k.held[:0]
	})
}

// got waits until n messages have arrived.
func (k *sink) got(n int) {
	k.Helper()
	testenv.Wait(k, 20*time.Second, "messages", func() bool {
		have := 0
		k.on(func() { have = k.messages })
		return have == n
	})
}

// state waits until a session is in a state.
func (k *sink) state(session uint64, want string) {
	k.Helper()
	testenv.Wait(k, 20*time.Second, "a session to be "+want, func() bool {
		for _, s := range k.stats().Sessions {
			if s.Session == session {
				return s.State == want
			}
		}
		return false
	})
}

// receiverParts are the tests of a receiver. They run on any rig.
var receiverParts = []struct {
	name string
	f    func(*testing.T, *rig)
}{
	{"One", testOne},
	{"ManyPeers", testManyPeers},
	{"Credits", testCredits},
	{"Acknowledgement", testAcknowledgement},
	{"ComesBack", testComesBack},
	{"Replaced", testReplaced},
	{"Killed", testKilled},
	{"Closing", testClosing},
	{"Hostile", testHostile},
	{"Flood", testFlood},
	{"Reads", testReads},
	{"Hellos", testHellos},
	{"GIDs", testGIDs},
	{"Allocations", testAllocations},
	{"LateCredits", testLateCredits},
	{"Churn", testChurn},
}

func TestReceiver(t *testing.T) {
	g := newRig(t)
	for _, c := range receiverParts {
		t.Run(c.name, func(t *testing.T) { c.f(t, g.with(t)) })
	}
}

// stall dials and sends no hello. Serve must not wait for such a connection.
func (k *sink) stall() {
	k.Helper()
	k.ns.Do(k, func() {
		c, err := net.Dial("tcp", k.address)
		k.must(err)
		k.Cleanup(func() { k.must(c.Close()) })
	})
}

// testOne: the messages of one peer arrive in order, the statistics count them, and the receiver
// acknowledges them with their position.
func testOne(t *testing.T, g *rig) {
	k := g.far.newSink(receiverConfig(), 64)
	p := g.near.dial(k.address, hello(7))
	if h := p.remote; h.Role != protocol.RoleAppend || h.Flow != "log" || h.Message != 1024 || h.Session != 7 || h.Next != 1 || h.Window != 16 || h.Durability != protocol.Durable {
		t.Errorf("the receiver says %+v", h)
	}
	const n = 200
	for i := range n {
		p.send(1, (i*37)%(1024-protocol.HeaderLen+1))
	}
	p.awaitAcked()
	s := k.stats()
	if one := s.Sessions[0]; s.Messages != n || s.Connected != 1 || one.State != "connected" || one.Sequence != n || one.Session != 7 || one.Messages != n ||
		one.Acknowledged != n || one.Limit < n || one.Seen.IsZero() || one.Cause != nil {
		t.Errorf("%+v", s)
	}
	if k.descriptor() < 0 {
		t.Error("there is no descriptor")
	}
}

func (k *sink) descriptor() (fd int) { k.on(func() { fd = k.r.FD() }); return fd }

// testManyPeers: several peers send their own messages at the same time. Each gets its whole window
// if there are enough frames.
func testManyPeers(t *testing.T, g *rig) {
	c := receiverConfig()
	k := g.far.newSink(c, c.Peers*c.Window)
	var all []*raw
	for n := range c.Peers {
		p := g.near.dial(k.address, hello(uint64(100+n)))
		if p.remote.Window != uint32(c.Window) {
			t.Errorf("peer %d has a window of %d", n, p.remote.Window)
		}
		all = append(all, p)
	}
	if _, err := g.near.tryDial(k.address, hello(200), connect.Config{}); connect.ReasonOf(err) != connect.ReasonRefused {
		t.Errorf("one peer too many: %v", err)
	}
	for range 50 {
		for _, p := range all {
			p.send(1, 300)
		}
	}
	for _, p := range all {
		p.awaitAcked()
	}
	k.got(50 * c.Peers)
	if s := k.stats(); s.Refused[protocol.Busy] != 1 {
		t.Errorf("%+v", s)
	}
}

// testCredits: while the flow holds frames, peers wait. With few frames each peer still gets one
// credit, and a new peer can connect.
func testCredits(t *testing.T, g *rig) {
	c := receiverConfig()
	k := g.far.newSink(c, 10)
	k.on(func() { k.hold = true })
	p := g.near.dial(k.address, hello(1))
	if want := uint32(10 - 3); p.remote.Window != want { // one frame is reserved for each peer that may still connect
		t.Fatalf("the first window is %d, not %d", p.remote.Window, want)
	}
	p.send(7, 10)
	p.awaitAcked() // acknowledgements need no free frames
	if p.limit != 7 {
		t.Errorf("the limit is %d with all frames held", p.limit)
	}
	other := g.near.dial(k.address, hello(2))
	if other.remote.Window != 1 {
		t.Errorf("the second window is %d, not 1", other.remote.Window)
	}
	other.send(1, 10)
	other.awaitAcked()
	k.got(8)
	k.release()
	p.send(40, 10)
	other.send(40, 10)
	p.awaitAcked()
	other.awaitAcked()
	k.got(88)
}

// testAcknowledgement: an acknowledgement is cumulative and independent of credits. The receiver
// ignores an acknowledgement of messages that have not arrived.
func testAcknowledgement(t *testing.T, g *rig) {
	k := g.far.newSink(receiverConfig(), 64)
	k.on(func() { k.silent = true })
	p := g.near.dial(k.address, hello(1))
	p.send(100, 10)
	k.got(100)
	if p.poll(); p.acked != 0 {
		t.Errorf("%d are acknowledged, of none", p.acked)
	}
	k.on(func() {
		k.r.Acknowledge(0, 60, 1)
		k.r.Acknowledge(0, 50, 1)
		k.r.Acknowledge(0, 101, 1)
		k.r.Acknowledge(9, 1, 1)
	})
	p.await("60 to be acknowledged", func() bool { return p.acked >= 60 })
	if p.acked != 60 {
		t.Errorf("%d are acknowledged", p.acked)
	}
	k.on(func() { k.r.Acknowledge(0, 100, 1) })
	p.awaitAcked()
	testenv.Wait(t, 10*time.Second, "nothing to be left to do", func() (idle bool) { k.on(func() { idle = k.r.Idle() }); return idle })
}

// testComesBack: a session continues after its peer reconnects. The peer gets the acknowledgements
// of earlier messages, and the receiver drops messages that the peer sends twice.
func testComesBack(t *testing.T, g *rig) {
	k := g.far.newSink(receiverConfig(), 64)
	k.on(func() { k.silent = true })
	p := g.near.dial(k.address, hello(5))
	p.send(20, 10)
	k.got(20)
	k.must(p.conn.Close())
	k.state(5, "disconnected")
	k.on(func() { k.r.Acknowledge(0, 10, 1) })
	if s := k.stats().Sessions[0]; s.Acknowledged != 10 || s.Cause == nil {
		t.Errorf("%+v", s)
	}

	p = g.near.dial(k.address, hello(5))
	if p.remote.Next != 21 || p.remote.Window != 16 {
		t.Errorf("the receiver says %+v", p.remote)
	}
	p.await("what was acknowledged", func() bool { return p.acked == 10 })
	p.post(p.message(15, payload(15, 10)))
	p.send(5, 10)
	k.got(25)
	k.on(func() { k.r.Acknowledge(0, 25, 1) })
	p.awaitAcked()
	if s := k.stats(); s.Replays != 1 || s.Connected != 2 || len(s.Sessions) != 1 {
		t.Errorf("%+v", s)
	}
}

// testReplaced: a new connection of a session replaces the old one. Messages from the old
// connection are not lost.
func testReplaced(t *testing.T, g *rig) {
	k := g.far.newSink(receiverConfig(), 64)
	old := g.near.dial(k.address, hello(5))
	old.send(10, 10)
	old.awaitAcked()
	p := g.near.dial(k.address, hello(5))
	if p.remote.Next != 11 {
		t.Errorf("the receiver says %+v", p.remote)
	}
	if _, text := old.ended(); text != errReplaced.Error() {
		t.Errorf("the old connection hears %q", text)
	}
	p.send(10, 10)
	p.awaitAcked()
	k.got(20)
}

// testKilled: if a peer vanishes in the middle of a message, its frames become receives again, and
// other peers continue.
func testKilled(t *testing.T, g *rig) {
	c := receiverConfig()
	k := g.far.newSink(c, c.Peers*c.Window)
	good := g.near.dial(k.address, hello(1))
	for n := range 4 {
		p := g.near.dial(k.address, hello(uint64(10+n)))
		p.send(8, 900)
		k.must(p.pair.Modify(errorState()))
		k.must(p.conn.Close())
		k.state(uint64(10+n), "disconnected")
		good.send(10, 100)
	}
	good.awaitAcked()
	testenv.Wait(t, 10*time.Second, "all frames to be receives", func() bool { return k.stats().Posted == int64(c.Peers*c.Window) })
}

// testClosing: when serving ends, the receiver acknowledges the messages of a connected peer and
// sends it the reason.
func testClosing(t *testing.T, g *rig) {
	k := g.far.newSink(receiverConfig(), 64)
	p := g.near.dial(k.address, hello(1))
	p.send(10, 10)
	p.awaitAcked()
	k.stall()
	k.endServe()
	if status, text := p.ended(); status != protocol.Closing || text != protocol.Closing.Error() {
		t.Errorf("the peer hears %v, %q", status, text)
	}
	if s := k.stats(); len(s.Refused) != 0 || s.Sessions[0].State != "disconnected" {
		t.Errorf("%+v", s)
	}
}
