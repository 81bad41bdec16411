package stream

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// The geometry of a ring of four slots, as a program in another language may use it.
const (
	ringSlots = 4
	ringSize  = 1024
)

// ring is a receiver that grants slots of one piece of memory. The test controls every step.
type ring struct {
	*impostor
	memory umem.Frame
	grant  rdma.MemoryRegion
}

// newRing makes a ring and registers its memory.
func (s *side) newRing() *ring {
	s.Helper()
	return s.ringAt(s.newImpostor())
}

func (s *side) ringAt(m *impostor) *ring {
	s.Helper()
	g := &ring{impostor: m, memory: umem.Frame{Addr: m.frames[0].Addr, Len: ringSlots * ringSize}}
	var err error
	g.grant, err = s.at.Domain.RegisterPart(s.region, g.memory.Addr, uint64(g.memory.Len), rdma.RemoteWrite|rdma.LocalWrite)
	s.must(err)
	s.Cleanup(func() { s.must(g.grant.Close()) })
	m.access = rdma.RemoteWrite
	return g
}

// again returns the same receiver for its next connection.
func (g *ring) again() *ring {
	g.Helper()
	m := &impostor{raw: &raw{side: g.side, textDone: make(chan string, 1)}, listener: g.listener}
	m.prepare()
	return g.side.ringAt(m)
}

// meet accepts a sender that must write, from a sequence on.
func (g *ring) meet(next uint64) {
	g.Helper()
	g.answer(func(h *protocol.Hello) []byte {
		h.Next, h.Window, h.Message, h.Capabilities = next, 0, ringSize, protocol.CapabilityWrite
		return g.told(h)
	})
}

// give grants slots, for messages from a sequence on.
func (g *ring) give(first, acknowledged, limit uint64, slot, count uint32) {
	g.Helper()
	g.say(&protocol.Grant{Progress: protocol.Progress{Sequence: acknowledged, Limit: limit, Session: g.session}, First: first}, protocol.Credit{Addr: g.grant.Addr() + uint64(slot*ringSize),
		RKey: g.grant.RKey(), Slot: slot, Count: count, Size: ringSize})
}

// say sends a grant with credits. It encodes header and credits correctly, whatever their values.
func (m *impostor) say(g *protocol.Grant, all ...protocol.Credit) {
	m.Helper()
	b := make([]byte, protocol.HeaderLen+len(all)*protocol.CreditLen)
	for i := range all {
		protocol.PutCredit(b[protocol.HeaderLen+i*protocol.CreditLen:], &all[i])
	}
	g.Credits = uint32(len(all))
	g.Checksum = protocol.Checksum(b[protocol.HeaderLen:])
	protocol.PutGrant(b, g)
	m.start(b, rdma.SendRequest{Op: rdma.Send})
}

// take waits for the next message, and checks its slot and its sequence.
func (g *ring) take(slot uint32, sequence uint64) {
	g.Helper()
	var c [1]rdma.WorkCompletion
	testenv.Wait(g, 20*time.Second, "a message", func() bool {
		n, err := g.came.Poll(c[:])
		g.must(err)
		return n == 1
	})
	imm := c[0].Immediate()
	b := g.region.At(g.memory.Addr+uint64(slot*ringSize), uint64(c[0].Length))
	d, why := protocol.ParseData(b)
	if c[0].Kind != rdma.ReceivedWrite || binary.BigEndian.Uint32(imm[:]) != slot || why != protocol.None || d.Sequence != sequence || d.Session != g.session ||
		!bytes.Equal(b[protocol.HeaderLen:], payload(d.Stamp-firstStamp, int(d.Length))) {
		g.Fatalf("%+v, and in slot %d is %+v, %v: want message %d", c[0], slot, d, why, sequence)
	}
	g.expect(c[0].ID)
}

// testRing: a sender writes its messages into the slots of a ring in order, and never more than are
// free. A repeated grant gives no new credits, and credits end with their connection.
func testRing(t *testing.T, g *rig) {
	r := g.far.newRing()
	p := g.near.newSource(senderConfig(r.listener.Addr().String()))
	p.more(14)
	r.meet(1)
	r.give(1, 0, 4, 0, 4)
	for n := range uint32(4) {
		r.take(n, uint64(n+1))
	}
	r.give(1, 0, 100, 0, 4) // the same grant again, with another limit
	r.give(5, 4, 100, 0, 1)
	r.take(0, 5)
	s := p.stats("the sender to wait for slots", func(s SenderStats) bool { return s.Acknowledged == 4 && s.Credit == 0 })
	if s.Posted != 5 || s.Waiting != 9 || s.Method != ByWrite {
		t.Errorf("%+v", s)
	}
	r.give(6, 5, 9, 1, 3)
	r.give(9, 5, 9, 0, 1)
	for n := range uint32(4) {
		r.take((n+1)%4, uint64(n+6))
	}
	r.give(10, 9, 13, 1, 3) // never acknowledged: the connection ends
	for n := range uint32(3) {
		r.take(n+1, uint64(n+10))
	}
	r.give(13, 9, 16, 0, 1)
	r.take(0, 13)
	r.must(r.conn.Close())
	p.stats("the sender to see the end", func(s SenderStats) bool { return s.Failures > 0 })

	r = r.again()
	r.meet(12)
	r.give(8, 11, 100, 0, 4) // an old grant
	r.give(12, 11, 100, 2, 2)
	r.take(2, 12)
	r.take(3, 13)
	r.give(14, 13, 100, 0, 1)
	r.take(0, 14)
	r.say(&protocol.Grant{Progress: protocol.Progress{Sequence: 14, Limit: 100, Session: r.session}, First: 15}, protocol.Credit{Addr: r.grant.Addr(), RKey: r.grant.RKey(), Slot: 1, Count: 3, Size: ringSize})
	p.await()
	r.must(r.conn.Close())
	p.endRun()
}

// testSenderGrants: a sender rejects an invalid grant, and its status names the error.
func testSenderGrants(t *testing.T, g *rig) {
	one := protocol.Credit{Addr: 1 << 20, RKey: 1, Count: 1, Size: 1024}
	with := func(change func(*protocol.Credit)) (c protocol.Credit) { c = one; change(&c); return c }
	for _, c := range []struct {
		want string
		say  func(m *impostor, g *protocol.Grant)
	}{
		{"does not follow", func(m *impostor, g *protocol.Grant) { g.First = 2; m.say(g, one) }},
		{"does not follow", func(m *impostor, g *protocol.Grant) {
			m.say(g, one, one)
			g.First = 2
			m.say(g, with(func(c *protocol.Credit) { c.Count = 2 }))
		}},
		{"does not follow", func(m *impostor, g *protocol.Grant) { g.First = 1<<64 - 1; m.say(g, one) }},
		{"shorter or longer", func(m *impostor, g *protocol.Grant) { m.say(g, with(func(c *protocol.Credit) { c.Size = 1023 })) }},
		{"outside of", func(m *impostor, g *protocol.Grant) {
			m.say(g, with(func(c *protocol.Credit) { c.Addr = 1<<64 - 1023 }))
		}},
		{"reserved", func(m *impostor, g *protocol.Grant) { m.say(g, with(func(c *protocol.Credit) { c.Count = 0 })) }},
		{"reserved", func(m *impostor, g *protocol.Grant) { m.say(g) }},
		{"another session", func(m *impostor, g *protocol.Grant) { g.Session++; m.say(g, one) }},
		{"acknowledges message 1", func(m *impostor, g *protocol.Grant) { g.Sequence = 1; m.say(g, one) }},
		{"beyond the limit", func(m *impostor, g *protocol.Grant) {
			for range maxCredits/protocol.MaxCredits + 1 {
				m.say(g, one, one, one, one, one, one, one, one)
				g.First += protocol.MaxCredits
				m.await("it to be sent", func() bool { return m.under == 0 || m.broken != rdma.Success })
			}
		}},
	} {
		m := g.far.newImpostor()
		p := g.near.newSource(senderConfig(m.listener.Addr().String()))
		m.answer(func(h *protocol.Hello) []byte {
			h.Window, h.Capabilities = 0, protocol.CapabilityWrite
			return m.told(h)
		})
		c.say(m, &protocol.Grant{Progress: protocol.Progress{Session: m.session}, First: 1})
		s := p.stats("the sender to see it", func(s SenderStats) bool { return s.Failures > 0 })
		if !strings.Contains(s.Cause, c.want) || s.Posted != 0 {
			t.Errorf("the cause is %q, want one with %q", s.Cause, c.want)
		}
		m.must(m.conn.Close())
		p.endRun()
	}
}
