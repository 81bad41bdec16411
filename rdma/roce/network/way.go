package network

import (
	"net/netip"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// Route is how packets get from a place of an interface's table to a peer: what wire.Path wants to know
// of Ethernet.
type Route struct {
	Place               int // of the source in the table
	Source, Destination rdma.GID
	SourceMAC           MAC
	DestinationMAC      MAC                    // of the peer, the group, or the gateway
	Tags                [wire.MaxTags]wire.Tag // the outer first

	// MTU is the longest packet in bytes, IP header included and Ethernet's not: the interface's, or
	// less where the route says so.
	MTU int
	// HopLimit is what the kernel would send with.
	HopLimit uint8
	// Local says that the peer's address is one of this interface's own: packets to it are not to
	// be sent.
	Local bool
	// NextHop is who has DestinationMAC: the peer, or the gateway. It is not valid of groups and of
	// ways that are Local.
	NextHop netip.Addr

	link int // index of the interface that the source is an address of
}

// key is whom a way leads to first.
func (w *Route) key() neighbourKey { return neighbourKey{w.link, w.NextHop} }
