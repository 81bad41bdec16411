package stream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

func errorState() (rdma.Attributes, rdma.Mask) {
	return rdma.Attributes{State: rdma.Error}, rdma.MaskState
}

// attacks are the things that a hostile peer does after three good messages, each with the reason
// for which the receiver ends it.
var attacks = []struct {
	name string
	why  protocol.Reason
	do   func(p *raw)
}{
	{"garbage", protocol.BadMagic, func(p *raw) { p.post(payload(3, 500)) }},
	{"nothing", protocol.BadLength, func(p *raw) { p.post(nil) }},
	{"short", protocol.BadLength, func(p *raw) { p.post(p.message(p.next, nil)[:63]) }},
	{"cut", protocol.BadLength, func(p *raw) { p.post(p.message(p.next, payload(p.next, 100))[:163]) }},
	{"longer than it says", protocol.BadLength, func(p *raw) { p.post(append(p.message(p.next, payload(p.next, 100)), 0)) }},
	{"bad header", protocol.BadHeader, func(p *raw) { b := p.message(p.next, nil); b[35] ^= 1; p.post(b) }},
	{"another kind", protocol.BadKind, func(p *raw) { b := p.message(p.next, nil); b[5] = 2; p.post(b) }},
	{"another version", protocol.BadVersion, func(p *raw) { b := p.message(p.next, nil); b[4] = 2; p.post(b) }},
	{"bad payload", protocol.BadPayload, func(p *raw) { b := p.message(p.next, payload(p.next, 100)); b[163] ^= 1; p.post(b) }},
	{"another session", protocol.BadSession, func(p *raw) { p.session++; b := p.message(p.next, nil); p.session--; p.post(b) }},
	{"gap", protocol.BadSequence, func(p *raw) { p.post(p.message(p.next+1, nil)) }},
	{"beyond credit", protocol.BeyondCredit, func(p *raw) { p.post(p.message(1<<40, nil)) }},
	{"too long", protocol.TooLong, func(p *raw) { p.post(p.message(p.next, payload(p.next, 1025-protocol.HeaderLen))) }},
	{"longer than a receive", protocol.TooLong, func(p *raw) { p.post(p.message(p.next, payload(p.next, 5000))) }},
}

// testHostile: the receiver sends a peer that breaks the rules the reason, and ends it. The peer's
// frames become receives again, other peers are not affected, and the session can reconnect.
func testHostile(t *testing.T, g *rig) {
	c := receiverConfig()
	frames := c.Peers * c.Window
	k := g.far.newSink(c, frames)
	good := g.near.dial(k.address, hello(1))
	wrong := map[protocol.Reason]uint64{}
	for n, a := range attacks {
		if n >= 5 && testing.Short() && a.why != protocol.TooLong {
			continue
		}
		session := uint64(100 + n)
		p := g.near.dial(k.address, hello(session))
		p.send(3, 50)
		p.awaitAcked()
		a.do(p)
		p.post(p.message(p.next, nil)) // sent after the violation
		status, text := p.ended()
		if text != a.why.Error() || status != a.why && status != protocol.None { // the queue pair may be in Error
			t.Errorf("%s: the peer hears %v, %q, not %v", a.name, status, text, a.why)
		}
		wrong[a.why]++
		if got := k.stats().Refused[a.why]; got != wrong[a.why] {
			t.Errorf("%s: %v is counted %d times, not %d", a.name, a.why, got, wrong[a.why])
		}
		k.state(session, "disconnected")
		good.send(5, 100)
		again := g.near.dial(k.address, hello(session))
		if again.remote.Next != 4 {
			t.Errorf("%s: back again it is to go on with %d", a.name, again.remote.Next)
		}
		again.send(3, 50)
		again.awaitAcked()
		k.must(again.conn.Close())
		k.state(session, "disconnected")
	}
	good.awaitAcked()
	testenv.Wait(t, 10*time.Second, "all frames to be receives", func() bool { return k.stats().Posted == int64(frames) })
}

// testFlood: the receiver ends a peer that keeps sending beyond its credit. Other peers lose
// receives to it only for a short time.
func testFlood(t *testing.T, g *rig) {
	c := receiverConfig()
	frames := c.Peers * c.Window
	k := g.far.newSink(c, frames)
	good := g.near.dial(k.address, hello(1))
	p := g.near.dial(k.address, hello(2))
	for n := range 3 * frames {
		if p.poll(); p.under < rawSends {
			p.post(p.message(1<<40+uint64(n), nil))
		}
		good.send(1, 10)
	}
	if _, text := p.ended(); text != protocol.BeyondCredit.Error() {
		t.Errorf("the peer hears %q", text)
	}
	good.awaitAcked()
	testenv.Wait(t, 10*time.Second, "all frames to be receives", func() bool { return k.stats().Posted == int64(frames) })
}

// offers dials address with a queue pair at another address, and returns the refusal. It does not
// connect the queue pair.
func (s *side) offers(address string, at netip.Addr, h protocol.Hello) (err error) {
	s.Helper()
	e := connect.End{Settings: connect.Defaults(), Elsewhere: true,
		Parameters: connect.Parameters{Transport: rdma.RC, QPN: 17, MTU: rdma.MTU1024, GID: rdma.GIDOf(at)}}
	e.Hello, err = h.Append(nil)
	s.must(err)
	s.ns.Do(s, func() {
		var conn *connect.Conn
		if conn, err = connect.Dial(context.Background(), address, e, connect.Config{}); err == nil {
			s.must(conn.Close())
		}
	})
	return err
}

// testGIDs: the receiver refuses a peer whose queue pair has another address than its connection,
// unless allow_any_gid is set.
func testGIDs(t *testing.T, g *rig) {
	third := netip.AddrFrom4([4]byte{10, 77, 0, 99})
	c := receiverConfig()
	k := g.far.newSink(c, 64)
	refused := []netip.Addr{third, netip.MustParseAddr("2001:db8::1")}
	if g.near.ns.IP != k.ns.IP { // from the same machine any of its addresses will do
		refused = append(refused, k.ns.IP, netip.MustParseAddr("127.0.0.1"))
	}
	for n, at := range refused {
		err := g.near.offers(k.address, at, hello(uint64(n+1)))
		want := fmt.Sprintf("GID %v, connection from %v (must be equal, or set allow_any_gid: true)", at, g.near.ns.IP)
		if connect.ReasonOf(err) != connect.ReasonRefused || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if s := k.stats(); s.Refused[protocol.NotPermitted] != uint64(len(refused)) || len(s.Sessions) != 0 {
		t.Errorf("%+v", s)
	}
	g.near.dial(k.address, hello(7))
	c.AllowAnyGID = true
	if err := g.near.offers(g.far.newSink(c, 64).address, k.ns.IP, hello(8)); err != nil && strings.Contains(err.Error(), "GID") {
		t.Error(err)
	}
}

// testHellos: the receiver refuses a peer whose hello does not match the flow or that Permit
// refuses, and makes no session for it.
func testHellos(t *testing.T, g *rig) {
	c := receiverConfig()
	c.Permit = func(_ connect.Peer, h protocol.Hello) error {
		if h.Session == 13 {
			return errors.New("not you")
		}
		return nil
	}
	k := g.far.newSink(c, 64)
	for _, bad := range []struct {
		text   string
		change func(*protocol.Hello)
	}{
		{"answers no requests", func(h *protocol.Hello) { h.Role = protocol.RoleBlocks }},
		{`not served here, but "log"`, func(h *protocol.Hello) { h.Flow = "other" }},
		{"session 0", func(h *protocol.Hello) { h.Session = 0 }},
		{"too short for acknowledgements", func(h *protocol.Hello) { h.Message = 63 }},
		{"not you", func(h *protocol.Hello) { h.Session = 13 }},
	} {
		h := hello(3)
		bad.change(&h)
		_, err := g.near.tryDial(k.address, h, connect.Config{})
		if connect.ReasonOf(err) != connect.ReasonRefused || !strings.Contains(err.Error(), bad.text) {
			t.Errorf("want %q: %v", bad.text, err)
		}
	}
	h := hello(3)
	h.Flow = ""
	g.near.dial(k.address, h)
	if s := k.stats(); s.Refused[protocol.NotPermitted] != 3 || len(s.Sessions) != 1 {
		t.Errorf("%+v", s)
	}
}
