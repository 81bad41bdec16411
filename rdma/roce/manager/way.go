package manager

import "github.com/unifiedd/unifiedd/rdma"

// peerPath is between an address of ours and one of a peer's.
type peerPath struct {
	place         uint8 // of ours in the table of GIDs
	local, remote rdma.GID
}

// numbered is something of a peer's by its number: an identifier, or a queue pair. Numbers are a card's own, and a card is
// believed only what it says from its address.
type numbered struct {
	from   rdma.GID
	guid   uint64
	number uint32
}
