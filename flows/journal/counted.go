package journal

// counted is a packet of a segment, by its number there, and the position of its record: those of the others follow. Where records in
// front of the segment are missing too, nobody knows how many, and the position is the least that it can be.
type counted struct {
	number, position uint64
	known            bool
}

// counts is what is known of a segment that is entered with a record that is next.
func (s *segment) counts(next uint64) counted {
	first := s.walk.Head().Segment.FirstPacket
	if s.numbered { // packets are counted from the first of the run
		return counted{first, s.start, true}
	}
	return counted{first, next, next > 0}
}

// short is a Gap where a segment, of which everything was read, has fewer records than its writer put there, as the mark tells that
// completed it; nil: it does not.
func (r *Reader) short() *Gap {
	c := r.counted
	completed, place := r.at.walk.Completed()
	if !c.known || completed <= c.number || r.at.walk.Place() < place {
		return nil
	}
	end := min(c.position+(completed-c.number), r.void)
	if end <= r.next {
		return nil
	}
	g := &Gap{Position: r.next, Records: end - r.next, Segment: r.at.name, Offset: r.at.walk.Place(), Err: ErrMissing}
	r.next, r.seeking, r.lost = end, false, nil
	return g
}
