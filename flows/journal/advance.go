package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// load gets the next batch.
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

// keep takes over the packets of a batch.
func (r *Reader) keep(b pcapng.Batch, data []byte, err error) error {
	if err == nil {
		r.batch = b
		r.found, err = packets(r.found[:0], b, data)
	}
	return r.about(err)
}

// about names the segment in an error. A file that is shorter than it was is one whose writer completed it meanwhile.
func (r *Reader) about(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return fmt.Errorf("read %s at offset %d: %w", r.at.name, r.at.walk.Place(), err)
}

// advance finds out how the log goes on where no batch follows the last one. io.EOF: not yet.
func (r *Reader) advance(prove bool) error {
	if len(r.later) < 2 { // else the list is good enough
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

// look lists the segments behind the one being read, and learns where a later run begins.
func (r *Reader) look() error {
	all, err := r.set.list(r.at.number)
	if err != nil {
		return err
	}
	r.later, r.void = r.later[:0], never
	for _, p := range all {
		if p.number <= r.at.number {
			continue
		}
		o, err := r.origin(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		r.later = append(r.later, p)
		if o.run != r.at.run {
			r.void = min(r.void, o.start)
		}
	}
	if len(r.later) > 0 && r.later[0].number > r.at.number+1 && r.runs(r.later[0]) {
		r.lost = ErrRemoved
	}
	return nil
}

// runs reports whether a segment is known to be of the run that is being read.
func (r *Reader) runs(p piece) bool {
	o, ok := r.origins[p.number]
	return ok && o.run == r.at.run
}

// origin is what the head of a segment says. It is read each time: as long as a segment is not used, a later run may begin in its place.
func (r *Reader) origin(p piece) (origin, error) {
	s, err := r.set.open(p)
	if err != nil {
		return origin{}, err
	}
	r.origins[p.number] = s.origin
	return s.origin, s.Close()
}

// openNext goes to the segment whose first record is the one that is next; it lies behind segments without records only.
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
		if err == nil && position == r.next {
			return true, r.enter(s)
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

// leave goes to the next segment that is there, whatever is in it.
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
	r.later = r.later[:0] // all are gone: the list is old
	return io.EOF
}

// overtaken goes on where a ring was written over what was being read.
func (r *Reader) overtaken() error {
	if err := r.look(); err != nil {
		return err
	}
	r.lost = ErrRemoved
	return r.leave()
}

// toNextRun goes to the run that has what is next.
func (r *Reader) toNextRun() error {
	for _, p := range r.later {
		if r.origins[p.number].start > r.void || r.runs(p) {
			continue
		}
		s, err := r.set.open(p)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		return r.enter(s)
	}
	return io.EOF
}

// enter goes on in another segment, which may be of another run.
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
	if err = errors.Join(err, r.look()); err != nil || r.seeking {
		return err
	}
	return r.join(s, old)
}

// join deals with records between two runs: too few of the earlier one, or too many.
func (r *Reader) join(s, old *segment) error {
	was := r.next
	r.next = s.start
	switch {
	case was < s.start:
		g := &Gap{Position: was, Records: s.start - was, Segment: old.name, Offset: old.walk.Place(), Err: ErrMissing}
		r.lost = nil
		return g
	case r.given >= s.start:
		return &Cut{From: s.start, Given: r.given}
	}
	r.lost = nil
	return nil
}

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
