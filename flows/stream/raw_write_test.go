package stream

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// writer returns the hello of a peer that can write.
func writer(session uint64) protocol.Hello {
	h := hello(session)
	h.Capabilities = protocol.CapabilityWrite
	return h
}

// progress parses a progress message from the receiver, and stores the credits in it.
func (p *raw) progress(message []byte) (protocol.Progress, protocol.Reason) {
	p.Helper()
	if k, _ := protocol.KindOf(message); k != protocol.KindGrant {
		return protocol.ParseProgress(message)
	}
	g, reason := protocol.ParseGrant(message)
	if reason == protocol.None && g.First != p.granted {
		p.Fatalf("credits for messages from %d on, not %d", g.First, p.granted)
	}
	for all := message[protocol.HeaderLen:]; reason == protocol.None && len(all) > 0; all = all[protocol.CreditLen:] {
		var c protocol.Credit
		if c, reason = protocol.ParseCredit(all); c.Count != 1 {
			p.Fatalf("a credit for %d messages", c.Count)
		}
		p.credits = append(p.credits, c)
		p.granted++
	}
	return g.Progress, reason
}

// peek waits for a number of credits, and returns the last of them.
func (p *raw) peek(n int) protocol.Credit {
	p.Helper()
	p.await("credits", func() bool { return len(p.credits) >= n })
	return p.credits[n-1]
}

// credit takes the next credit.
func (p *raw) credit() protocol.Credit {
	p.Helper()
	c := p.peek(1)
	p.credits = p.credits[1:]
	return c
}

// write performs op with b at the address of a credit.
func (p *raw) write(b []byte, c protocol.Credit, op rdma.Op) {
	p.Helper()
	r := rdma.SendRequest{Op: op, RemoteAddr: c.Addr, RKey: c.RKey}
	if op == rdma.WriteImmediate || op == rdma.SendImmediate {
		binary.BigEndian.PutUint32(r.Immediate[:], c.Slot)
	}
	p.request(b, r)
}

// good returns the next message, valid, with a payload of size bytes.
func (p *raw) good(size int) []byte { return p.message(p.next, payload(p.next, size)) }
