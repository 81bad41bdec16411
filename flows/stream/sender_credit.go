package stream

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// maxCredits is how many credits of a receiver's are remembered, a power of two.
const maxCredits = 4096

// credits are what a receiver has granted on one link, to be written into one message after the other.
type credits struct {
	items      [maxCredits]protocol.Credit
	head, tail uint32
	size       uint32 // that each message has room for, at least
	next       uint64 // sequence of the message that the next credit is for
}

// newCredits are none yet, of a receiver that says in its hello how long messages may be.
func newCredits(h *protocol.Hello) *credits { return &credits{size: h.Message, next: h.Next} }

// add takes the credits of a message. What is known already mints nothing.
func (c *credits) add(message []byte, g *protocol.Grant) protocol.Reason {
	all, sequence := protocol.CreditsOf(message, g.Credits), g.First
	for ; len(all) > 0; all = all[protocol.CreditLen:] {
		one, why := protocol.ParseCredit(all)
		if why == protocol.None {
			why = c.one(one, sequence)
		}
		if why != protocol.None {
			return why
		}
		sequence += uint64(one.Count)
	}
	return protocol.None
}

// one takes one credit, for the messages from a sequence on.
func (c *credits) one(one protocol.Credit, sequence uint64) protocol.Reason {
	end := sequence + uint64(one.Count)
	switch {
	case end < sequence || end > mostAhead:
		return protocol.BadSequence
	case end <= c.next:
		return protocol.None
	case sequence != c.next:
		return protocol.BadSequence
	case one.Size < c.size:
		return protocol.BadLength
	case c.tail-c.head == maxCredits:
		return protocol.BeyondCredit
	}
	c.items[c.tail%maxCredits] = one
	c.tail++
	c.next = end
	return protocol.None
}

// remoteAddress makes a request the WRITE of the next message. There is a credit for it.
func (c *credits) remoteAddress(r *rdma.SendRequest) {
	one := &c.items[c.head%maxCredits]
	r.Op, r.RemoteAddr, r.RKey = rdma.WriteImmediate, one.Addr, one.RKey
	binary.BigEndian.PutUint32(r.Immediate[:], one.Slot)
	one.Addr += uint64(one.Size)
	one.Slot++
	if one.Count--; one.Count == 0 {
		c.head++
	}
}
