package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

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
	if ok, err := r.goOn(); ok || err != nil {
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

// goOn goes to the segment whose first record is the one that is next; it lies behind segments without records only.
func (r *Reader) goOn() (bool, error) {
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
