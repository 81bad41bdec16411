package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// load reads the next batch.
func (r *Reader) load(prove bool) error {
	if r.found = r.found[:0]; r.next >= r.void {
		return nil
	}
	if err := r.at.follow(); err != nil {
		return r.about(err)
	}
	b, data, err := r.at.walk.Next()
	switch {
	case err == io.EOF:
		return r.advance(prove)
	case errors.Is(err, pcapng.ErrReplaced):
		return r.overtaken()
	}
	return r.keep(b, data, err)
}

// keep stores the packets of a batch.
func (r *Reader) keep(b pcapng.Batch, data []byte, err error) error {
	if err == nil {
		r.batch = b
		r.found, err = packets(r.found[:0], b, data)
		r.at.used = r.at.used || len(r.found) > 0
	}
	return r.about(err)
}

// about names the segment in an error. A file that became shorter is not an error: its writer has
// completed it since the reader asked for its size.
func (r *Reader) about(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return fmt.Errorf("read %s at offset %d: %w", r.at.name, r.at.walk.Place(), err)
}

// advance finds out how the log continues after the last batch. io.EOF means that it does not
// continue yet.
func (r *Reader) advance(prove bool) error {
	if len(r.later) < 2 { // otherwise the list is recent enough
		if err := r.look(); err != nil || r.next >= r.void {
			return err
		}
	}
	if ok, err := r.openNext(); ok || err != nil {
		return err
	}
	if g := r.short(); g != nil {
		return g
	}
	certain, err := r.certain(prove)
	if err != nil || r.next >= r.void {
		return err
	}
	if !certain {
		return io.EOF
	}
	b, data, err := r.at.walk.Skip()
	if errors.Is(err, pcapng.ErrReplaced) {
		return r.overtaken()
	}
	if err == io.EOF {
		if g := r.short(); g != nil {
			return g
		}
		return r.leave()
	}
	return r.keep(b, data, err)
}

// look lists the segments after the current one, and finds where a later run begins. A run that ends before it uses a
// segment leaves its number to the next run: then the file is removed, or the slot of a ring gets another head. So a
// segment with the number of the current one may be a later one. It must be found in the same list as those behind it:
// if it was looked for before, it may have been made since, and a reader would pass it.
func (r *Reader) look() error {
	all, err := r.set.list(r.at.number)
	if err != nil {
		return err
	}
	r.later, r.void = r.later[:0], min(r.before, r.voidBy(r.at.run, r.at.number))
	for _, p := range all {
		if p.number < r.at.number || p.number == r.at.number && r.at.used {
			continue
		}
		o, err := r.origin(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		if p.number == r.at.number && o.run == r.at.run {
			continue
		}
		r.later = append(r.later, p)
		if o.run != r.at.run {
			r.void = min(r.void, o.start)
		}
	}
	if len(r.later) > 0 && r.later[0].number > r.at.number+1 && r.runs(r.later[0]) {
		r.lost = errRemoved
	}
	return nil
}

// runs reports whether a segment is known to belong to the current run.
func (r *Reader) runs(p piece) bool {
	o, ok := r.origins[p.number]
	return ok && o.run == r.at.run
}

// origin returns the origin of a segment from its head. It reads the head each time, because a
// later run may reuse the place of an unused segment.
func (r *Reader) origin(p piece) (origin, error) {
	s, err := r.set.open(p)
	if err != nil {
		return origin{}, err
	}
	r.origins[p.number] = s.origin
	return s.origin, s.Close()
}

// openNext opens the segment whose first record is the next one. Only segments without records may
// lie before it. A reader that seeks its first record opens one whose records begin before that: when it began, the
// record was not written yet, and the log has gone on to further segments since.
func (r *Reader) openNext() (bool, error) {
	for _, p := range r.later {
		s, err := r.set.open(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return false, err
		}
		position, err := s.first()
		if err == nil && (position == r.next || r.seeking && position > 0 && position < r.next) {
			if err := r.enter(s); err != nil || !r.seeking {
				return true, err
			}
			r.counted = s.counts(position)
			return true, nil
		}
		if err = errors.Join(err, s.Close()); errors.Is(err, errAbsent) {
			continue
		}
		if err != nil || position != 0 {
			return false, err
		}
	}
	return false, nil
}

// leave opens the next segment that exists, whatever its contents.
func (r *Reader) leave() error {
	for _, p := range r.later {
		s, err := r.set.open(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		return r.enter(s)
	}
	r.later = r.later[:0] // all are gone, so the list is old
	return io.EOF
}

// overtaken continues after a ring has overwritten the segment that was being read.
func (r *Reader) overtaken() error {
	if err := r.look(); err != nil || r.next >= r.void {
		return err
	}
	r.lost = errRemoved
	return r.leave()
}

// toNextRun opens the run that has the next record. io.EOF means that it has no segment yet.
func (r *Reader) toNextRun() error {
	if ok, err := r.openRun(); ok || err != nil {
		return err
	}
	if err := r.look(); err != nil { // the list may be from before the run had a segment
		return err
	}
	ok, err := r.openRun()
	if !ok && err == nil {
		err = io.EOF
	}
	return err
}

// openRun opens the run that has the next record, if the list of segments has it.
func (r *Reader) openRun() (bool, error) {
	for _, p := range r.later {
		if r.origins[p.number].start > r.void || r.runs(p) {
			continue
		}
		s, err := r.set.open(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return false, err
		}
		return true, r.enter(s)
	}
	return false, nil
}

// enter continues in another segment, which may belong to another run.
func (r *Reader) enter(s *segment) error {
	old := r.at
	r.at, r.found = s, r.found[:0]
	r.counted = counted{}
	switch {
	case s.run != old.run:
		r.counted = s.counts(s.start)
	case !r.seeking:
		r.counted = s.counts(r.next)
	}
	err := old.Close()
	if s.run == old.run {
		r.later = slices.DeleteFunc(r.later, func(p piece) bool { return p.number <= s.number })
		return err
	}
	if err = errors.Join(err, r.look()); err != nil {
		return err
	}
	r.lost = nil // what was certain of the earlier run is not so of this one, whose records may still come
	if r.seeking && r.next >= s.start {
		return nil
	}
	return r.join(s, old)
}

// join handles the records at the border of two runs: some of the earlier one may be missing or
// void.
func (r *Reader) join(s, old *segment) error {
	was := r.next
	r.next, r.seeking = s.start, false
	switch {
	case was < s.start:
		return &Gap{Position: was, Records: s.start - was, Segment: old.name, Offset: old.walk.Place(), Err: ErrMissing}
	case r.given >= s.start:
		return &Cut{From: s.start, Given: r.given}
	}
	return nil
}

// begin opens the segment with the next record.
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
			return r.beginAt(all[i], first)
		}
	}
	return r.beginOldest(all)
}

// beginOldest opens the oldest segment.
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
			continue // an empty segment of a run whose other segments were removed
		}
		if r.next == 0 {
			r.next = first
		}
		if whole && first > r.next {
			r.lost, r.seeking = errRemoved, false
		}
		if !whole {
			first = 0
		}
		return r.beginAt(p, first)
	}
	return io.EOF
}

// nextSegment reports whether the next segment belongs to a run that began after a position.
func (r *Reader) nextSegment(all []piece, position uint64) bool {
	for _, p := range all {
		if o, err := r.origin(p); err == nil {
			return o.start > position
		}
	}
	return false
}

// beginAt opens a segment whose first record has a position; 0: it is not known. If the segment no longer exists,
// nothing is open afterwards.
func (r *Reader) beginAt(p piece, first uint64) error {
	s, err := r.set.open(p)
	if errors.Is(err, errAbsent) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	lost := r.lost
	r.at, r.counted = s, s.counts(first)
	if !r.seeking {
		r.counted = s.counts(r.next)
	}
	err = r.look()
	r.lost = lost
	return err
}

// noMore reports whether an error says that a segment has no further record. That its file is shorter than when it was
// opened says so, too: see about.
func noMore(err error) bool { return err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) }

// first returns the position of the first record of the segment, or 0 if that record is not intact.
// Reading continues before this record.
func (s *segment) first() (uint64, error) {
	b, data, err := s.walk.Next()
	if noMore(err) {
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

// firstOf returns the position of the first record of a segment, computed from its other records if
// necessary. If none is intact, it returns where the run began, and whole is false.
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

// begins returns the position that the segment's first record has or had; 0 means that no record is
// intact.
func (s *segment) begins() (uint64, error) {
	for {
		b, data, err := s.walk.Skip()
		if noMore(err) {
			return 0, nil
		}
		if err != nil {
			return 0, s.gone(err)
		}
		front := uint64(0) // records before this batch
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

// before returns the position n records before position. If there cannot be n records before it, it
// returns position.
func before(position, n uint64) uint64 {
	if n >= position {
		return position
	}
	return position - n
}
