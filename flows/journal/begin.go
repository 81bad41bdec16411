package journal

import (
	"errors"
	"io"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// begin opens the segment with the record that is next.
func (r *Reader) begin() error {
	all, err := r.set.list(0)
	if err != nil {
		return err
	}
	for i := len(all) - 1; i >= 0 && r.seeking; i-- {
		first, whole, err := firstOf(r.set, all[i])
		if err != nil && !errors.Is(err, errAbsent) {
			return err
		}
		if whole && first <= r.next {
			return r.beginAt(all[i])
		}
	}
	return r.beginOldest(all)
}

// beginOldest opens the oldest segment that is there.
func (r *Reader) beginOldest(all []piece) error {
	for i, p := range all {
		first, whole, err := firstOf(r.set, p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		if r.next == 0 && !whole && p.number > 1 && r.nextSegment(all[i+1:], first) {
			continue // an empty one that is left of a run whose others are not kept
		}
		if r.next == 0 {
			r.next = first
		}
		if whole && first > r.next {
			r.lost, r.seeking = ErrRemoved, false
		}
		return r.beginAt(p)
	}
	return io.EOF
}

// nextSegment reports whether the next segment is of a run that began behind a position.
func (r *Reader) nextSegment(all []piece, position uint64) bool {
	for _, p := range all {
		if o, err := r.origin(p); err == nil {
			return o.start > position
		}
	}
	return false
}

// beginAt opens a segment. It may be gone by now: then nothing is open.
func (r *Reader) beginAt(p piece) error {
	s, err := r.set.open(p)
	if errors.Is(err, errAbsent) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	lost := r.lost
	r.at, r.counted = s, counted{}
	if !r.seeking {
		r.counted = s.counts(r.next)
	}
	err = r.look()
	r.lost = lost
	return err
}

// first is the position of the record right behind the head; 0: there is none that is intact. Reading goes on in front of it.
func (s *segment) first() (uint64, error) {
	b, data, err := s.walk.Next()
	if err == io.EOF {
		return 0, nil
	}
	if err != nil {
		return 0, s.gone(err)
	}
	s.walk.Again()
	all, err := packets(nil, b, data)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	rec, reason := all[0].read()
	if reason == protocol.BadPayload && s.verified {
		return 0, nil
	}
	return rec.Position, nil
}

// firstOf is the position that the first record of a segment has, or had, as its other records tell. Where none is intact it is
// where the run began, and not whole.
func firstOf(set set, p piece) (position uint64, whole bool, err error) {
	s, err := set.open(p)
	if err != nil {
		return 0, false, err
	}
	position, err = s.begins()
	if err == nil && position > 0 {
		return position, true, s.Close()
	}
	return s.start, false, errors.Join(err, s.Close())
}

// begins is the position that the segment's first record has or had; 0: nothing is intact.
func (s *segment) begins() (uint64, error) {
	for {
		b, data, err := s.walk.Skip()
		if err == io.EOF {
			return 0, nil
		}
		if err != nil {
			return 0, s.gone(err)
		}
		front := uint64(0) // records in front of this batch
		if !s.numbered {
			front = b.FirstPacket - s.walk.Head().Segment.FirstPacket
		}
		all, err := packets(nil, b, data)
		if err != nil {
			return 0, err
		}
		for i, p := range all {
			rec, reason := p.read()
			switch {
			case reason != protocol.None:
				continue
			case s.leading:
				return s.start, nil
			}
			return before(rec.Position, front+uint64(i)), nil
		}
	}
}

// before is a position so many records in front of another; the other where there cannot be as many.
func before(position, n uint64) uint64 {
	if n >= position {
		return position
	}
	return position - n
}
