package index

// seen is the set of hashes in the open block.
type seen struct {
	slots []uint64 // 0: free
	n     int
}

const (
	leastSeen = 1 << 12
	// mostSeen bounds the keys of a block. Every query reads a block that has more.
	mostSeen = 1 << 18
)

// add reports whether a hash is new.
func (s *seen) add(h uint64) bool {
	if 2*s.n >= len(s.slots) {
		s.grow()
	}
	h |= 1 // none is 0
	for i := h >> 20; ; i++ {
		switch slot := &s.slots[i&uint64(len(s.slots)-1)]; *slot {
		case h:
			return false
		case 0:
			*slot = h
			s.n++
			return true
		}
	}
}

func (s *seen) grow() {
	old := s.slots
	s.slots, s.n = make([]uint64, max(leastSeen, 2*len(old))), 0
	for _, h := range old {
		if h != 0 {
			s.add(h)
		}
	}
}

func (s *seen) clear() {
	clear(s.slots)
	s.n = 0
}

// full reports whether a block has too many keys.
func (s *seen) full() bool { return s.n >= mostSeen }
