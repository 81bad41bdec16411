package segment

import "sync/atomic"

// removals counts segments that were removed, by what asked for it.
type removals struct{ keep, keepFree atomic.Uint64 }

func (r *removals) status() map[string]uint64 {
	return map[string]uint64{"keep": r.keep.Load(), "keep_free": r.keepFree.Load()}
}

// removeSegment removes a complete segment and its index, and reports whether it is gone.
func (s *Manager) removeSegment(path string, count *atomic.Uint64) bool {
	if err := s.names.remove(path); err != nil {
		s.log.Warn("an old segment stays", "why", err)
		return false
	}
	count.Add(1)
	s.names.removeIndex(path, s.log)
	return true
}
