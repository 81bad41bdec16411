package layout

import (
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// SnapLen limits the kept bytes of each packet, and counts the omitted ones.
type SnapLen struct {
	Max       uint32          // bytes; 0: whole packets
	Truncated counter.Counter // packets
	Omitted   counter.Counter // bytes
}

// keep returns how many bytes of a packet of length bytes are kept.
func (s *SnapLen) keep(length uint32) uint32 {
	if s.Max == 0 {
		return length
	}
	return min(length, s.Max)
}

// count counts a packet of which kept bytes were kept.
func (s *SnapLen) count(length, kept uint32) {
	if kept < length {
		s.Truncated.Add(1)
		s.Omitted.Add(uint64(length - kept))
	}
}

// Status returns the counters; nil if packets are kept whole. The ring of a packet socket may have
// truncated a packet that is too long for it.
func (s *SnapLen) Status() *status.Truncated {
	if s.Max == 0 && s.Truncated.Load() == 0 {
		return nil
	}
	return &status.Truncated{SnapLen: s.Max, Packets: s.Truncated.Load(), Bytes: s.Omitted.Load()}
}
