package layout

import "github.com/unifiedd/unifiedd/internal/pcapng"

// Numbering gives the packets of a ring their numbers, and mirrored ones their
// direction. The zero value gives none, as files have it.
type Numbering struct {
	extra      uint32 // bytes that takes
	numbers    bool
	next       uint64
	directions []pcapng.Direction // by source; nil: none are told
}

// NumberFrom numbers packets from first on.
func NumberFrom(first uint64) Numbering {
	return Numbering{extra: pcapng.NumberLen, numbers: true, next: first}
}

// WithDirections also tells directions, by source; nil: there are none.
func (n Numbering) WithDirections(directions []pcapng.Direction) Numbering {
	if directions != nil {
		n.directions, n.extra = directions, n.extra+pcapng.DirectionLen
	}
	return n
}

// tail writes what follows a packet of a source in its block.
func (n *Numbering) tail(source uint32, dst []byte, capLen, blockLen uint32) {
	switch {
	case n.numbers && n.directions != nil:
		pcapng.PutNumberedDirectedTail(dst, capLen, blockLen, n.next, n.directions[source])
	case n.numbers:
		pcapng.PutNumberedTail(dst, capLen, blockLen, n.next)
	case n.directions != nil:
		pcapng.PutDirectedTail(dst, capLen, blockLen, n.directions[source])
	default:
		pcapng.PutPacketTail(dst, capLen, blockLen)
	}
	n.next++
}
