package flows

import "github.com/unifiedd/unifiedd/internal/pcapng"

// numbering gives the packets of a ring their numbers. The zero value gives none,
// as files have it.
type numbering struct {
	extra uint32 // bytes a number takes
	next  uint64
}

// numberFrom numbers packets from first on.
func numberFrom(first uint64) numbering { return numbering{extra: pcapng.NumberLen, next: first} }

// numbering is how packets are numbered that go to the store.
func (s *store) numbering() numbering {
	if s.device == nil {
		return numbering{}
	}
	return numberFrom(s.device.base)
}

// tail writes what follows a packet in its block.
func (n *numbering) tail(dst []byte, capLen, blockLen uint32) {
	if n.extra == 0 {
		pcapng.PutPacketTail(dst, capLen, blockLen)
		return
	}
	pcapng.PutNumberedTail(dst, capLen, blockLen, n.next)
	n.next++
}
