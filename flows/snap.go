package flows

import (
	"github.com/unifiedd/unifiedd/internal/counter"
)

// snap is how much of each packet is kept, and counts what is not. It belongs to the
// worker's thread; the counters may be read from anywhere.
type snap struct {
	most    uint32          // bytes; 0: all of them
	packets counter.Counter // cut short
	bytes   counter.Counter // left out
}

// keep is how much of a packet of length bytes is kept.
func (s *snap) keep(length uint32) uint32 {
	if s.most == 0 {
		return length
	}
	return min(length, s.most)
}

// count notes a packet of which so much was kept.
func (s *snap) count(length, kept uint32) {
	if kept < length {
		s.packets.Add(1)
		s.bytes.Add(uint64(length - kept))
	}
}

// status is nil where packets are kept whole.
func (s *snap) status() *CutStatus {
	if s.most == 0 {
		return nil
	}
	return &CutStatus{SnapLen: s.most, Packets: s.packets.Load(), Bytes: s.bytes.Load()}
}
