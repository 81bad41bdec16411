package journal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/internal/ring"
)

// Resume is the manifest of a log whose end was found and whose segments were mended since: with what is there beyond the one that was read, or a
// first one. Segments from next on are not in use: the log goes on with that.
func Resume(path string, end End, next uint64) (Manifest, error) {
	l, err := Open(path)
	if errors.Is(err, ring.ErrNone) {
		return resume(nil, end, next)
	}
	if err != nil {
		return Manifest{}, err
	}
	m, err := resume(l.set, end, next)
	return m, errors.Join(err, l.Close())
}

func resume(s set, end End, next uint64) (m Manifest, err error) {
	if end.Manifest != nil {
		m = *end.Manifest
	} else {
		m = Manifest{Oldest: 1}
		if m.ID, err = NewLogID(); err != nil {
			return m, err
		}
	}
	m.Next, m.Reserved = end.Next, end.Next
	next = max(next, m.After())
	m.drop(next)
	if s == nil {
		return m, nil
	}
	all, err := s.list(0)
	if err != nil {
		return m, err
	}
	for _, p := range all {
		if p.ahead || p.number <= m.Newest || p.number >= next {
			continue
		}
		one, err := s.open(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return m, fmt.Errorf("read the head of segment %d: %w", p.number, err)
		}
		m.Begin(p.number, Run{Number: one.run, Start: one.start})
		if err := one.Close(); err != nil {
			return m, err
		}
	}
	return m, nil
}

// drop has the manifest name no segment from one on, which is to be begun again: nothing was ever written to it.
func (m *Manifest) drop(from uint64) {
	if m.Newest < from {
		return
	}
	m.Newest = max(from, m.Oldest) - 1
	m.Runs = slices.DeleteFunc(slices.Clone(m.Runs), func(r Run) bool { return r.Segment >= from })
}

// After is the number that the next segment has at least.
func (m *Manifest) After() uint64 {
	if n := len(m.Absent); n > 0 {
		return m.Absent[n-1].Last + 1
	}
	return 0
}
