package fanout

import (
	"encoding/binary"
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

// Choose selects the peers that get a message.
type Choose string

const (
	// All selects every peer.
	All Choose = "all"
	// Hash selects one peer by the addresses and ports of the packet in the message. Both directions
	// of a TCP connection or a UDP exchange go to the same peer. Anything but an IP packet goes to the
	// first peer.
	Hash Choose = "hash"
	// Round selects one peer after the other. It skips peers without room while another peer has room,
	// and disconnected peers while another one is connected. Messages stay with their peer when it
	// disconnects.
	Round Choose = "round"
)

// Policy says what happens when a peer's queue is full.
type Policy string

const (
	// Wait makes Offer refuse messages for the peer until it has room. If Acknowledge is Any or Most,
	// and enough other peers are connected and have room, Offer skips a disconnected peer and counts
	// the message as dropped there (disconnected).
	Wait Policy = "wait"
	// DropNewest drops the new message for the peer.
	DropNewest Policy = "drop_newest"
	// DropOldest drops the message that has waited longest. A message that was ever posted cannot be
	// dropped. If all were posted, DropOldest acts as DropNewest.
	DropOldest Policy = "drop_oldest"
	// Disconnect abandons all messages that the peer has not acknowledged, and reconnects.
	Disconnect Policy = "disconnect"
)

// Acknowledge says how many of the peers of a message must acknowledge it.
type Acknowledge string

const (
	// Nobody means that Acknowledged returns no tokens.
	Nobody Acknowledge = ""
	// Any requires one peer.
	Any Acknowledge = "any"
	// Most requires more than half of the peers.
	Most Acknowledge = "most"
	// Everybody requires all peers.
	Everybody Acknowledge = "all"
)

// need returns the number of acknowledgements for a number of peers.
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

// choose returns the peers of a message as a bit mask.
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

// next returns the next peer that is connected and has room, or else the next one that is
// connected. The turn moves on when a message is taken.
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

var be = binary.BigEndian

// Numbers of IEEE 802.3, 802.1Q and IANA.
const (
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeVLAN  = 0x8100
	typeQinQ  = 0x88a8
	typeOther = 0x9100 // used for tags before 802.1ad

	protocolTCP = 6
	protocolUDP = 17

	mostTags = 4 // most VLAN tags that are skipped
	mostNext = 8 // most extension headers that are skipped
)

// flowHash is equal for all packets between two endpoints, in both directions. It covers addresses
// and ports for TCP and UDP, and only addresses for other IP packets and for fragments. It is 0 for
// anything but an IP packet, and for a packet without whole addresses. The packet is untrusted.
func flowHash(packet []byte) uint32 {
	kind, at := networkHeader(packet)
	switch kind {
	case typeIPv4:
		return hashIPv4(packet[at:])
	case typeIPv6:
		return hashIPv6(packet[at:])
	}
	return 0
}

// networkHeader returns the EtherType after VLAN tags, and the offset of the header of that type.
// It returns 0 if the packet ends before that.
func networkHeader(packet []byte) (kind uint16, at int) {
	at = 12
	for range mostTags + 1 {
		if len(packet) < at+2 {
			return 0, 0
		}
		kind = be.Uint16(packet[at:])
		at += 2
		if kind != typeVLAN && kind != typeQinQ && kind != typeOther {
			return kind, at
		}
		at += 2
	}
	return 0, 0
}

func hashIPv4(p []byte) uint32 {
	if len(p) < 20 || p[0]>>4 != 4 {
		return 0
	}
	from, to := uint64(be.Uint32(p[12:])), uint64(be.Uint32(p[16:]))
	header, next := int(p[0]&15)*4, p[9]
	var ports [2]uint16
	if fragment := be.Uint16(p[6:]) & 0x3fff; fragment == 0 && header >= 20 && header <= len(p) { // more fragments, or an offset
		ports = portsOf(next, p[header:])
	}
	return both(mix(from), mix(to), ports, next)
}

func hashIPv6(p []byte) uint32 {
	if len(p) < 40 || p[0]>>4 != 6 {
		return 0
	}
	from, to := mix(be.Uint64(p[8:])^mix(be.Uint64(p[16:]))), mix(be.Uint64(p[24:])^mix(be.Uint64(p[32:])))
	next, rest := skipExtensions(p[6], p[40:])
	return both(from, to, portsOf(next, rest), next)
}

// skipExtensions skips extension headers of IPv6 (RFC 8200). It reports no ports for any fragment,
// not even the first, so that all fragments have the same hash.
func skipExtensions(next byte, p []byte) (byte, []byte) {
	for range mostNext {
		switch next {
		case 0, 43, 60, 135: // hop-by-hop options, routing, destination options, mobility
		case 44: // fragment
			if len(p) < 8 {
				return next, nil
			}
			return p[0], nil
		default:
			return next, p
		}
		if len(p) < 8 || len(p) < 8+int(p[1])*8 {
			return next, nil
		}
		next, p = p[0], p[8+int(p[1])*8:]
	}
	return next, nil
}

// portsOf returns the ports of TCP and UDP, or zeros if there are none.
func portsOf(next byte, p []byte) [2]uint16 {
	if next != protocolTCP && next != protocolUDP || len(p) < 4 {
		return [2]uint16{}
	}
	return [2]uint16{be.Uint16(p), be.Uint16(p[2:])}
}

// both combines the two endpoints. Their order does not matter.
func both(from, to uint64, ports [2]uint16, next byte) uint32 {
	sum := mix(from+uint64(ports[0])) + mix(to+uint64(ports[1]))
	return uint32(mix(sum+uint64(next)) >> 32)
}

// mix is the finalizer of MurmurHash3: each bit of x affects all bits of the result.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
