package flows

import "github.com/unifiedd/unifiedd/internal/pcapng"

// numbering gives the packets of a ring their numbers, and mirrored ones their
// direction. The zero value gives none, as files have it.
type numbering struct {
	extra      uint32 // bytes that takes
	numbers    bool
	next       uint64
	directions []pcapng.Direction // by source; nil: none are told
}

// numberFrom numbers packets from first on.
func numberFrom(first uint64) numbering {
	return numbering{extra: pcapng.NumberLen, numbers: true, next: first}
}

// direct also tells directions, if there are any.
func (n numbering) direct(directions []pcapng.Direction) numbering {
	if directions != nil {
		n.directions, n.extra = directions, n.extra+pcapng.DirectionLen
	}
	return n
}

// numbering is how packets are numbered that go to the store.
func (s *store) numbering() numbering {
	if s.device == nil {
		return numbering{}
	}
	return numberFrom(s.device.base)
}

// tail writes what follows a packet of a source in its block.
func (n *numbering) tail(source uint32, dst []byte, capLen, blockLen uint32) {
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
