package journal

// Mark is how far a session has come in a log: the last sequence, and the owner of that record (see [protocol.OwnerOf]).
type Mark struct{ Sequence, Owner uint64 }

// Remembered is how many sessions Sessions has at least, where there were as many; it has twice as many at most.
const Remembered = 1 << 15

// Sessions remembers those sessions of a log that were noted last. The zero value has none.
type Sessions struct{ young, old map[uint64]Mark }

// Note remembers how far a session has come.
func (s *Sessions) Note(session uint64, m Mark) {
	if _, known := s.young[session]; s.young == nil || len(s.young) >= Remembered && !known {
		s.old, s.young = s.young, map[uint64]Mark{}
	}
	s.young[session] = m
}

// Last is how far a session has come, the zero Mark where that is not known.
func (s *Sessions) Last(session uint64) Mark {
	if m, known := s.young[session]; known {
		return m
	}
	return s.old[session]
}

// Len is how many sessions there are at most: those that were noted again are counted twice.
func (s *Sessions) Len() int { return len(s.young) + len(s.old) }
