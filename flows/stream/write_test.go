package stream

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSenderWrites: TestSender passes with a receiver that grants memory and has messages written.
func TestSenderWrites(t *testing.T) {
	g := newRig(t)
	for _, c := range senderParts {
		t.Run(c.name, func(t *testing.T) { c.f(t, g.writing(t)) })
	}
}

// writes are the things that a peer that must write does after three good messages, each with the
// reason for which the receiver ends it.
var writes = []struct {
	name string
	why  protocol.Reason
	do   func(p *raw)
}{
	{"in front of the grant", protocol.NotGranted, func(p *raw) { c := p.credit(); c.Addr -= 64; p.write(p.good(100), c, rdma.WriteImmediate) }},
	{"across its end", protocol.NotGranted, func(p *raw) {
		c := p.credit()
		c.Addr += uint64(c.Size) - 100
		p.write(p.good(100), c, rdma.WriteImmediate)
	}},
	{"far away", protocol.NotGranted, func(p *raw) { c := p.credit(); c.Addr += 1 << 40; p.write(p.good(100), c, rdma.WriteImmediate) }},
	{"at the end of addresses", protocol.NotGranted, func(p *raw) { c := p.credit(); c.Addr = 1<<64 - 64; p.write(p.good(100), c, rdma.WriteImmediate) }},
	{"longer than the grant", protocol.NotGranted, func(p *raw) { p.write(p.good(1025-protocol.HeaderLen), p.credit(), rdma.WriteImmediate) }},
	{"longer than a frame", protocol.NotGranted, func(p *raw) { p.write(p.good(5000), p.credit(), rdma.WriteImmediate) }},
	{"one grant by the key of another", protocol.NotGranted, func(p *raw) {
		a := p.credit()
		a.RKey = p.peek(1).RKey
		p.write(p.good(900), a, rdma.WriteImmediate)
	}},
	{"a key never given", protocol.NotGranted, func(p *raw) { c := p.credit(); c.RKey ^= 0x5a5a5a; p.write(p.good(100), c, rdma.WriteImmediate) }},
	{"after the grant ended", protocol.NotGranted, func(p *raw) {
		c := p.credit()
		p.write(p.good(100), c, rdma.WriteImmediate)
		p.next++
		p.awaitAcked()
		p.write(p.good(100), c, rdma.Write)
	}},
	{"READ", protocol.NotGranted, func(p *raw) { p.write(make([]byte, 64), p.credit(), rdma.Read) }},
	{"a slot that is none", protocol.NotGranted, func(p *raw) { c := p.credit(); c.Slot = 1 << 30; p.write(p.good(100), c, rdma.WriteImmediate) }},
	{"a slot behind the last", protocol.NotGranted, func(p *raw) { c := p.credit(); c.Slot = 16; p.write(p.good(100), c, rdma.WriteImmediate) }},
	{"a slot out of turn", protocol.BadSequence, func(p *raw) { p.write(p.good(100), p.peek(2), rdma.WriteImmediate) }},
	{"a slot not written", protocol.NotWritten, func(p *raw) {
		c := p.peek(2)
		c.Slot = p.peek(1).Slot
		p.write(p.good(100), c, rdma.WriteImmediate)
	}},
	{"a credit twice", protocol.NotGranted, func(p *raw) {
		c := p.credit()
		p.write(p.good(100), c, rdma.WriteImmediate)
		p.write(nil, c, rdma.WriteImmediate)
	}},
	{"nothing", protocol.BadLength, func(p *raw) { p.write(nil, p.credit(), rdma.WriteImmediate) }},
	{"short", protocol.BadLength, func(p *raw) { p.write(p.good(0)[:63], p.credit(), rdma.WriteImmediate) }},
	{"cut", protocol.BadLength, func(p *raw) { p.write(p.good(100)[:163], p.credit(), rdma.WriteImmediate) }},
	{"header alone", protocol.BadLength, func(p *raw) {
		p.write(p.good(500)[:64], p.peek(1), rdma.Write)
		p.write(nil, p.peek(1), rdma.WriteImmediate)
	}},
	{"old bytes for a payload", protocol.BadPayload, func(p *raw) {
		c, b := p.peek(1), p.good(500)
		p.write(b[:64], c, rdma.Write)
		c.Addr, c.RKey = p.peek(2).Addr, p.peek(2).RKey
		p.write(b, c, rdma.WriteImmediate)
	}},
	{"garbage", protocol.BadMagic, func(p *raw) { p.write(payload(3, 500), p.credit(), rdma.WriteImmediate) }},
	{"bad header", protocol.BadHeader, func(p *raw) { b := p.good(0); b[35] ^= 1; p.write(b, p.credit(), rdma.WriteImmediate) }},
	{"bad payload", protocol.BadPayload, func(p *raw) { b := p.good(100); b[163] ^= 1; p.write(b, p.credit(), rdma.WriteImmediate) }},
	{"another session", protocol.BadSession, func(p *raw) {
		p.session++
		b := p.good(0)
		p.session--
		p.write(b, p.credit(), rdma.WriteImmediate)
	}},
	{"an old sequence", protocol.BadSequence, func(p *raw) { p.write(p.message(2, payload(2, 50)), p.credit(), rdma.WriteImmediate) }},
	{"a later sequence", protocol.BadSequence, func(p *raw) { p.write(p.message(p.next+1, nil), p.credit(), rdma.WriteImmediate) }},
	{"SEND", protocol.BadKind, func(p *raw) { p.write(p.good(100), p.credit(), rdma.Send) }},
	{"SEND with immediate", protocol.BadKind, func(p *raw) { p.write(p.good(100), p.credit(), rdma.SendImmediate) }},
	{"an empty SEND with immediate", protocol.BadLength, func(p *raw) { p.write(nil, p.credit(), rdma.SendImmediate) }},
}

const poison = 0x5a

// poisoned is a sink with known contents in its frames, outside of the grants, and in many other
// frames.
type poisoned struct {
	*sink
	supplied, guards []umem.Frame
}

func (s *side) newPoisoned(c ReceiverConfig, frames int) *poisoned {
	s.Helper()
	k := &poisoned{sink: s.newSink(c, 0)}
	k.supplied, k.guards = k.take(frames), k.take(1000)
	for _, f := range slices.Concat(k.supplied, k.guards) {
		b := s.region.Bytes(f)
		for i := range b {
			b[i] = poison
		}
	}
	k.frames = frames
	k.on(func() {
		if n := k.r.Supply(k.supplied); n < frames {
			s.Errorf("%d of %d frames are taken", n, frames)
		}
	})
	s.Cleanup(func() { k.on(func() { k.hands.Give(k.guards) }) })
	return k
}

// untouched checks that all memory outside of grants is unchanged.
func (k *poisoned) untouched(what string) {
	k.Helper()
	whole := func(b []byte) bool {
		for _, v := range b {
			if v != poison {
				return false
			}
		}
		return true
	}
	for _, f := range k.guards {
		if !whole(k.region.Bytes(f)) {
			k.Fatalf("%s: bytes of a frame changed that nobody was granted", what)
		}
	}
	c := &k.r.config
	for _, f := range k.supplied {
		if b := k.region.Bytes(f); !whole(b[:c.Landing]) || !whole(b[c.Landing+c.Message:]) {
			k.Fatalf("%s: bytes beside a grant changed", what)
		}
	}
}

// testHostileWrites: the receiver ends a peer that writes something or somewhere it must not, and
// sends it the reason. Memory outside of its grants does not change, its frames are granted again,
// other peers are not affected, and the session can reconnect.
func testHostileWrites(t *testing.T, g *rig) {
	c := receiverConfig()
	frames := c.Peers * c.Window
	k := g.far.newPoisoned(c, frames)
	good := g.near.dial(k.address, writer(1))
	wrong := map[protocol.Reason]uint64{}
	for n, a := range writes {
		session := uint64(100 + n)
		p := g.near.dial(k.address, writer(session))
		p.send(3, 50)
		p.awaitAcked()
		a.do(p)
		status, text := p.ended()
		if a.name == "a credit twice" && text == protocol.BadSequence.Error() {
			a.why = protocol.BadSequence // the slot was already granted again, for a later message
		}
		if text != a.why.Error() || status != a.why && status != protocol.None {
			t.Errorf("%s: the peer hears %v, %q, not %v", a.name, status, text, a.why)
		}
		wrong[a.why]++
		if got := k.stats().Refused[a.why]; got != wrong[a.why] {
			t.Errorf("%s: %v is counted %d times, not %d", a.name, a.why, got, wrong[a.why])
		}
		k.state(session, "disconnected")
		k.untouched(a.name)
		good.send(5, 100)
		again := g.near.dial(k.address, writer(session))
		if again.remote.Next < 4 || again.remote.Next > 5 {
			t.Errorf("%s: back again it is to go on with %d", a.name, again.remote.Next)
		}
		again.send(3, 50)
		again.awaitAcked()
		k.must(again.conn.Close())
		k.state(session, "disconnected")
	}
	good.awaitAcked()
	k.allBack(frames, c.Window)
}

// allBack waits until all frames are available for writing, and peers have grants for granted of
// them.
func (k *sink) allBack(frames, granted int) {
	k.Helper()
	testenv.Wait(k, 10*time.Second, "all frames to be granted again", func() bool {
		s := k.stats()
		return s.Posted == int64(frames) && s.Granted == uint64(granted)
	})
}

// testOthersGrant: a peer cannot write into memory that is granted to another peer, if grants are
// windows of a queue pair. On other devices a grant is valid for the whole protection domain.
func testOthersGrant(t *testing.T, g *rig) {
	if !g.far.at.Device.Capabilities().WindowsType2 {
		return
	}
	c := receiverConfig()
	k := g.far.newPoisoned(c, c.Peers*c.Window)
	good, p := g.near.dial(k.address, writer(1)), g.near.dial(k.address, writer(2))
	stolen := good.peek(1)
	p.peek(1)
	p.write(p.good(100), stolen, rdma.WriteImmediate)
	if _, text := p.ended(); text != protocol.NotGranted.Error() {
		t.Errorf("the peer hears %q", text)
	}
	good.send(40, 100)
	good.awaitAcked()
}

// testNoCredit: while the flow holds all frames, the peer gets no credit. The receiver ends a peer
// that sends an immediate without a credit.
func testNoCredit(t *testing.T, g *rig) {
	c := receiverConfig()
	c.Peers = 1
	k := g.far.newPoisoned(c, 4)
	k.on(func() { k.hold = true })
	p := g.near.dial(k.address, writer(1))
	p.send(4, 50)
	p.awaitAcked()
	if len(p.credits) != 0 || p.limit != 4 {
		t.Errorf("there are %d credits, up to message %d", len(p.credits), p.limit)
	}
	p.request(nil, rdma.SendRequest{Op: rdma.WriteImmediate, Immediate: [4]byte{0, 0, 0, 5}})
	if _, text := p.ended(); text != protocol.NotGranted.Error() {
		t.Errorf("the peer hears %q", text)
	}
	k.release()
	k.state(1, "disconnected")
	k.allBack(4, 0)
}

// testVanishes: if a client vanishes while it writes, no part of its message remains, and its
// frames go to other clients.
func testVanishes(t *testing.T, g *rig) {
	c := receiverConfig()
	c.Peers = 2
	frames := c.Window
	k := g.far.newPoisoned(c, frames)
	good := g.near.dial(k.address, writer(1))
	for n := range 4 {
		p := g.near.dial(k.address, writer(uint64(10+n)))
		p.peek(1)
		if n%2 == 0 { // the frame has a part of a message
			p.write(p.good(900)[:500], p.peek(1), rdma.Write)
			p.await("it to be written", func() bool { return p.under == 0 })
		} else {
			p.write(p.good(900), p.credit(), rdma.WriteImmediate)
		}
		k.must(p.pair.Modify(errorState()))
		k.must(p.conn.Close())
		k.state(uint64(10+n), "disconnected")
		good.send(2*frames, 100)
	}
	good.awaitAcked()
	k.untouched("in the end")
	testenv.Wait(t, 10*time.Second, "all frames to be there", func() bool { return k.stats().Posted == int64(frames) })
}

// testMustWrite: a receiver that has messages written refuses a peer that cannot write. A sender
// whose method does not match the receiver's reports that.
func testMustWrite(t *testing.T, g *rig) {
	k := g.far.newSink(receiverConfig(), 64)
	_, err := g.near.tryDial(k.address, hello(3), connect.Config{})
	if connect.ReasonOf(err) != connect.ReasonRefused || !strings.Contains(err.Error(), "method: send") {
		t.Errorf("it is refused so: %v", err)
	}
	if n := k.stats().Refused[protocol.NotPermitted]; n != 1 {
		t.Errorf("%d are counted", n)
	}
	c := senderConfig(k.address)
	c.Method = BySend
	s := g.near.newSource(c).stats("the sender to be refused", func(s SenderStats) bool { return s.Failures > 0 })
	if !strings.Contains(s.Cause, "WRITE with immediate alone") {
		t.Errorf("the cause is %q", s.Cause)
	}
	g.far.writes = false
	k = g.far.newSink(receiverConfig(), 64)
	c = senderConfig(k.address)
	c.Method = ByWrite
	s = g.near.newSource(c).stats("the sender to see it", func(s SenderStats) bool { return s.Failures > 0 })
	if !strings.Contains(s.Cause, "takes messages by SEND") {
		t.Errorf("the cause is %q", s.Cause)
	}
}

// writeParts are the tests of receivers of written messages. They run on any rig.
var writeParts = []struct {
	name string
	f    func(*testing.T, *rig)
}{
	{"Hostile", testHostileWrites},
	{"OthersGrant", testOthersGrant},
	{"NoCredit", testNoCredit},
	{"Vanishes", testVanishes},
	{"MustWrite", testMustWrite},
	{"Ring", testRing},
	{"SenderGrants", testSenderGrants},
}

func TestWrites(t *testing.T) {
	g := newRig(t)
	for _, c := range writeParts {
		t.Run(c.name, func(t *testing.T) { c.f(t, g.writing(t)) })
	}
}
