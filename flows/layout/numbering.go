package layout

import "github.com/unifiedd/unifiedd/internal/pcapng"

// Numbering adds to records the numbers of packets in a ring and the directions of mirrored
// packets. The zero value adds nothing, as in files.
type Numbering struct {
	extra      uint32 // bytes that these options take
	numbers    bool
	next       uint64
	directions []pcapng.Direction // by source; nil: none
}

// NumberFrom returns a Numbering that numbers packets from first on.
func NumberFrom(first uint64) Numbering {
	return Numbering{extra: pcapng.NumberLen, numbers: true, next: first}
}

// WithDirections also adds directions, by source; nil: none.
func (n Numbering) WithDirections(directions []pcapng.Direction) Numbering {
	if directions != nil {
		n.directions, n.extra = directions, n.extra+pcapng.DirectionLen
	}
	return n
}

// tail writes the part of a block after the packet.
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
