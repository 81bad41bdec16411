package stream

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// impostor is a receiver that sends whatever the test wants. It serves the first sender that dials.
type impostor struct {
	*raw
	listener *connect.Listener
	access   rdma.Access // the sender's access to granted memory
}

func (s *side) newImpostor() *impostor {
	s.Helper()
	m := &impostor{raw: &raw{side: s, textDone: make(chan string, 1)}}
	m.prepare()
	s.ns.Do(s, func() {
		var err error
		m.listener, err = connect.Listen(context.Background(), s.ns.IP.String()+":0", connect.Config{})
		s.must(err)
	})
	s.Cleanup(func() { s.must(m.listener.Close()) })
	return m
}

// answer accepts one sender. change makes the hello to send from a valid one.
func (m *impostor) answer(change func(*protocol.Hello) []byte) {
	m.Helper()
	q, err := m.listener.Accept(context.Background())
	m.must(err)
	h, err := protocol.ParseHello(q.Remote().Hello)
	m.must(err)
	m.session = h.Session
	h.Next, h.Window, h.Message, h.Durability = 1, 8, 1024, protocol.Received
	e := connect.End{Queue: m.pair, Hello: change(&h)}
	e.Settings, err = m.at.Settings(netip.Addr{}, m.ns.IP)
	m.must(err)
	e.Settings.Access = m.access
	e.Parameters, err = connect.Prepare(m.at.Device, m.pair, e.Settings)
	m.must(err)
	for n := range rawReceives {
		m.expect(uint64(n))
	}
	m.conn, err = q.Accept(e)
	m.must(err)
	go m.listen()
	m.Cleanup(m.close)
}

func (m *impostor) told(h *protocol.Hello) []byte {
	b, err := h.Append(nil)
	m.must(err)
	return b
}

// testSenderImpostors: a sender rejects an invalid hello or progress message, its status names the
// error, and it tries again.
func testSenderImpostors(t *testing.T, g *rig) {
	with := func(change func(*protocol.Hello)) func(*impostor, *protocol.Hello) []byte {
		return func(m *impostor, h *protocol.Hello) []byte {
			change(h)
			return m.told(h)
		}
	}
	for _, c := range []struct {
		want  string
		hello func(*impostor, *protocol.Hello) []byte
		say   func(*protocol.Progress) []byte // makes the progress message; nil: only the hello is wrong
	}{
		{"does not begin as one", func(*impostor, *protocol.Hello) []byte { return []byte("how do you do?") }, nil},
		{"no receiver of messages", with(func(h *protocol.Hello) { h.Role = protocol.RoleBlocks }), nil},
		{"another session", with(func(h *protocol.Hello) { h.Session++ }), nil},
		{"does not follow", with(func(h *protocol.Hello) { h.Next = 0 }), nil},
		{"expects message 7", with(func(h *protocol.Hello) { h.Next = 7 }), nil},
		{"expects message 18446744073709551615", with(func(h *protocol.Hello) { h.Next = 1<<64 - 1 }), nil},
		{"does not begin as one", nil, func(*protocol.Progress) []byte { return make([]byte, protocol.HeaderLen) }},
		{"shorter or longer", nil, func(*protocol.Progress) []byte { return make([]byte, 5) }},
		{"IBV_WC_LOC_", nil, func(*protocol.Progress) []byte { return make([]byte, 2*protocol.MaxGrantLen) }},
		{"another session", nil, func(p *protocol.Progress) []byte { p.Session++; return put(p) }},
		{"acknowledges message 4", nil, func(p *protocol.Progress) []byte { p.Sequence = 4; return put(p) }},
		{"acknowledges message 18446744073709551615", nil, func(p *protocol.Progress) []byte { p.Sequence = 1<<64 - 1; return put(p) }},
		{"payload's checksum", nil, func(p *protocol.Progress) []byte { p.Status = protocol.BadPayload; return put(p) }},
		{"closed the connection", nil, func(p *protocol.Progress) []byte { p.Limit = 1<<64 - 1; return put(p) }},
	} {
		m := g.far.newImpostor()
		p := g.near.newSource(senderConfig(m.listener.Addr().String()))
		if c.hello == nil {
			c.hello = (*impostor).toldAs
		}
		m.answer(func(h *protocol.Hello) []byte { return c.hello(m, h) })
		if c.say != nil {
			m.post(c.say(&protocol.Progress{Session: m.session, Limit: 8}))
			m.await("it to be sent", func() bool { return m.under == 0 })
		}
		m.must(m.conn.Close())
		s := p.stats("the sender to see it", func(s SenderStats) bool { return s.Failures > 0 })
		if !strings.Contains(s.Cause, c.want) || s.Acknowledged != 0 {
			t.Errorf("the cause is %q, want one with %q", s.Cause, c.want)
		}
		p.endRun()
	}
}

func (m *impostor) toldAs(h *protocol.Hello) []byte { return m.told(h) }

func put(p *protocol.Progress) []byte {
	b := make([]byte, protocol.HeaderLen)
	protocol.PutProgress(b, p)
	return b
}

// TestForemost: of several causes the sender reports the most informative one.
func TestForemost(t *testing.T) {
	said, flush, other := &saidError{"no"}, &rdma.OpError{Status: rdma.WorkFlushed}, errors.New("other")
	for _, c := range []struct{ heard, cause, want error }{
		{said, other, said}, {other, nil, other}, {flush, other, other},
	} {
		if got := primaryCause(c.heard, c.cause); got != c.want {
			t.Errorf("of %v and %v it tells %v", c.heard, c.cause, got)
		}
	}
}
