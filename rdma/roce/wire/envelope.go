package wire

import "github.com/unifiedd/unifiedd/rdma"

const (
	// Port is the UDP port of RoCE v2.
	Port = 4791
	// MaxEnvelopeBytes is the longest envelope: two VLAN tags and IPv6.
	MaxEnvelopeBytes = ethernetBytes + MaxTags*tagBytes + ipv6Bytes + udpBytes
	// MaxTags is the largest number of VLAN tags in front of the IP header.
	MaxTags = 2

	ethernetBytes = 14
	tagBytes      = 4
	ipv4Bytes     = 20
	ipv6Bytes     = 40
	udpBytes      = 8

	// minTransport is the length of a packet without payload and extension headers.
	minTransport = BTHBytes + ICRCBytes

	protocolUDP = 17
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
)

// Tag is a VLAN tag. A Type of 0 means that the tag is absent.
type Tag struct {
	Type uint16 // 0x8100, 0x88a8 or 0x9100
	TCI  uint16 // priority and VLAN number
}

// Envelope has the headers in front of the base transport header of a received packet. Offsets are
// from the first byte of the Ethernet header.
type Envelope struct {
	Source, Destination       rdma.GID // an IPv4 address is mapped
	SourceMAC, DestinationMAC [6]byte
	Tags                      [MaxTags]Tag // the outer first

	Network   int // offset of the IP header
	Transport int // offset of the base transport header
	Length    int // bytes from the base transport header through the ICRC, as UDP says

	FlowLabel    uint32 // IPv6: 20 bits
	SourcePort   uint16 // selects the path through the network
	TrafficClass uint8  // DSCP and ECN
	HopLimit     uint8
	IPv6         bool
}

// Explicit congestion notification, the lower two bits of the traffic class. RFC 3168.
const (
	NotECT = 0 // routers drop the packet rather than mark it
	ECT1   = 1
	ECT0   = 2 // routers may mark the packet
	CE     = 3 // a router has marked it
)

// DSCP returns the class of service: 6 bits.
func (e *Envelope) DSCP() uint8 { return e.TrafficClass >> 2 }

// ECN returns NotECT, ECT0, ECT1 or CE.
func (e *Envelope) ECN() uint8 { return e.TrafficClass & CE }
