package config

import (
	"net"
	"net/netip"
)

// Stage changes packets on their way, where they are. Exactly one of its fields
// is set.
type Stage struct {
	Set       *Set
	Sequence  *Sequence
	Timestamp *Timestamp
	Sum       *Sum // with KindRDMARDMA, and alone
	Pos       Pos  // where the stage is configured
}

// Set overwrites fields of a packet's headers, and keeps its checksums right. A
// field with its zero value stays as it is.
type Set struct {
	MACSource, MACDestination net.HardwareAddr // six bytes
	VLAN                      int              // 1 to 4094, of a packet which has a tag
	IPSource, IPDestination   netip.Addr       // of a packet of the same version of IP
	PortSource                int              // 1 to 65535, of TCP and UDP
	PortDestination           int
}

// Sequence writes a number that counts the flow's packets from 1, 8 bytes,
// big-endian, at Offset bytes into the UDP payload.
type Sequence struct {
	Offset int
}

// Timestamp writes the time, 8 bytes, big-endian, in nanoseconds since 1970, at
// Offset bytes into the UDP payload.
type Timestamp struct {
	Offset int
}

// Sum adds the messages of all clients, element by element; what is sent on is
// their sum. Elements are little-endian.
type Sum struct {
	Type SumType
}
