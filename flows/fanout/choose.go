package fanout

import (
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

// Choose is which peers a message is for.
type Choose string

const (
	// All is every peer.
	All Choose = "all"
	// Hash is one peer, by the addresses and ports of the packet that the message is: both directions of a TCP connection or a UDP exchange go
	// to the same one. What is no IP packet goes to the first.
	Hash Choose = "hash"
	// Round is one peer after the other, those that have no room left out as long as another one has, and those that are not connected as
	// long as another one is. What a peer has it keeps when it goes away.
	Round Choose = "round"
)

// Policy is what happens when a peer's queue is full.
type Policy string

const (
	// Wait has Offer refuse messages for the peer until there is room. A peer that is not connected is left out, and the message counted as dropped there
	// (disconnected), where Acknowledge is Any or Most and enough others are connected and have room.
	Wait Policy = "wait"
	// DropNewest leaves the peer out.
	DropNewest Policy = "drop_newest"
	// DropOldest gives up the message that waits longest. Those that were posted once cannot be, so when all were it is DropNewest.
	DropOldest Policy = "drop_oldest"
	// Disconnect gives up everything the peer has not acknowledged, and its connection, which is then made again.
	Disconnect Policy = "disconnect"
)

// Acknowledge is how many of the peers that a message is for must acknowledge it.
type Acknowledge string

const (
	// Nobody has no tokens told of.
	Nobody Acknowledge = ""
	// Any is one.
	Any Acknowledge = "any"
	// Most is more than half.
	Most Acknowledge = "most"
	// Everybody is all.
	Everybody Acknowledge = "all"
)

// need is how many of so many peers it is.
func (a Acknowledge) need(peers int) int {
	switch a {
	case Any:
		return 1
	case Most:
		return peers/2 + 1
	case Everybody:
		return peers
	}
	return 0
}

func (c *Config) checkWords() error {
	switch c.Choose {
	case All, Hash, Round:
	default:
		return fmt.Errorf("a choice of %q: it is %s, %s or %s", c.Choose, All, Hash, Round)
	}
	switch c.Acknowledge {
	case Nobody, Any, Most, Everybody:
	default:
		return fmt.Errorf("acknowledgement by %q: it is by %s, %s or %s", c.Acknowledge, Any, Most, Everybody)
	}
	for _, p := range c.Peers {
		switch p.Policy {
		case Wait, DropNewest, DropOldest, Disconnect:
		default:
			return fmt.Errorf("a policy of %q: it is %s, %s, %s or %s", p.Policy, Wait, DropNewest, DropOldest, Disconnect)
		}
	}
	return nil
}

// choose is the peers a message is for, as bits.
func (f *Fanout) choose(message []umem.Frame) uint64 {
	switch f.choice {
	case Hash:
		var packet []byte
		if len(message) > 0 {
			packet = f.region.Bytes(message[0])
		}
		return 1 << (uint64(flowHash(packet)) * uint64(len(f.peers)) >> 32)
	case Round:
		return 1 << f.next()
	}
	return 1<<len(f.peers) - 1
}

// next is the peer whose turn it is: the next that is connected and has room, else the next that is connected, so that none is left with one that is
// away. The turn passes on when a message is taken.
func (f *Fanout) next() int {
	there := -1
	for i := range f.peers {
		n := (f.turn + i) % len(f.peers)
		switch s := f.peers[n].sender; {
		case !s.Connected():
		case s.Room():
			return n
		case there < 0:
			there = n
		}
	}
	if there >= 0 {
		return there
	}
	return f.turn
}
