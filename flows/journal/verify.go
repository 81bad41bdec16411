package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// mostGaps bounds the gaps that are listed one by one.
const mostGaps = 1000

// SegmentReport is the contents of one segment.
type SegmentReport struct {
	Name       string
	Start, Run uint64 // first position and number of the run that wrote it
	Batches    uint64
	Records    uint64 // of the log
	Bytes      uint64 // of their payloads
	First      uint64 // position of the first record; 0: none
	Last       uint64
	Void       uint64 // intact records after the end of the run, which are not part of the log
	Damaged    uint64 // records with a wrong checksum, and packets that are no messages
	Holes      uint64 // places where batches are missing or torn
	Completed  bool   // its writer completed it, so nothing at its end was lost in a crash
}

// Report is the contents of a log.
type Report struct {
	Segments []SegmentReport
	Records  uint64 // of the log
	Bytes    uint64 // of their payloads
	First    uint64 // position of the oldest record; 0: none
	Next     uint64 // one past the last record
	Lost     uint64 // records between them that cannot be read
	Gaps     []*Gap // where, the first 1000

	Damage   []*Damage // what the manifest names and does not exist, and heads that cannot be read
	Manifest bool      // there is a manifest with an intact copy
	Copies   int       // damaged copies of the manifest, which the next start repairs

	Group     bool   // the log is a group's
	Committed uint64 // then: the last position that is certainly committed
}

// Intact reports whether everything between the first record and the last exists, and all that the
// manifest names.
func (r *Report) Intact() bool { return r.Lost == 0 && len(r.Damage) == 0 }

// Verify reads a whole log, twice. A flow may write the log at the same time; the report may or may
// not include the new records.
func Verify(path string) (Report, error) {
	l, err := Open(path)
	if err != nil {
		return Report{}, err
	}
	r := Report{}
	var m Manifest
	if m, r.Copies, err = l.set.manifest(); err == nil {
		r.Manifest, r.Group, r.Committed = true, m.Flags&FlagGroup != 0, m.Committed
	} else {
		r.Copies = 0
	}
	_, r.Damage, err = l.check()
	if err == nil {
		err = l.walk(&r)
	}
	if err == nil {
		err = l.inspect(&r)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		err = fmt.Errorf("verify log %s: %w", path, err)
	}
	return r, err
}

// walk reads the log from its beginning to its end.
func (l *Log) walk(report *Report) (err error) {
	r := l.all(0)
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		rec, err := r.Next()
		g, gap := errors.AsType[*Gap](err)
		switch {
		case err == io.EOF:
			report.Next = max(r.next, 1)
			return nil
		case gap:
			report.addGap(g)
		case err != nil:
			return err
		default:
			report.add(&rec)
		}
	}
}

func (r *Report) add(rec *Record) {
	if r.First == 0 {
		r.First = rec.Position
	}
	r.Records++
	r.Bytes += uint64(rec.Length)
}

func (r *Report) addGap(g *Gap) {
	r.Lost += g.Records
	if len(r.Gaps) < mostGaps {
		r.Gaps = append(r.Gaps, g)
	}
}

// inspect examines each segment by itself.
func (l *Log) inspect(report *Report) error {
	const rereads = 100 // of all segments; each can be completed once

	all, err := l.set.list(0)
	if err != nil {
		return err
	}
	void := report.Next // in this run, records from here on are not part of the log
	later, again := uint64(0), 0
	for i := len(all) - 1; i >= 0; i-- {
		s, err := l.set.open(all[i])
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		if later != 0 && s.run != later {
			void = min(void, report.startOf(later))
		}
		one, err := s.inspect(void)
		completed := errors.Is(err, io.ErrUnexpectedEOF) && again < rereads
		if err = errors.Join(err, s.Close()); errors.Is(err, errAbsent) {
			continue
		}
		if completed {
			again++
			i++ // the file is shorter than when it was opened: its writer has completed it
			continue
		}
		if err != nil {
			return err
		}
		later = s.run
		report.Segments = append(report.Segments, one)
	}
	slices.Reverse(report.Segments)
	return nil
}

// startOf returns the start position of a run that has a segment in the report.
func (r *Report) startOf(run uint64) uint64 {
	for i := range r.Segments {
		if r.Segments[i].Run == run {
			return r.Segments[i].Start
		}
	}
	return never
}

// inspect counts the contents of a segment. Records from position void on are not part of the log.
func (s *segment) inspect(void uint64) (SegmentReport, error) {
	one := SegmentReport{Name: s.name, Start: s.start, Run: s.run}
	for {
		place := s.walk.Place()
		b, data, err := s.walk.Skip()
		if err == io.EOF {
			_, end := s.walk.Completed()
			one.Completed = end > 0
			return one, nil
		}
		if err != nil {
			return one, fmt.Errorf("read %s at offset %d: %w", s.name, place, s.gone(err))
		}
		if int64(b.Offset) > place {
			one.Holes++
		}
		one.Batches++
		all, err := packets(nil, b, data)
		if err != nil {
			return one, err
		}
		for _, p := range all {
			one.add(&p, void)
		}
	}
}

func (r *SegmentReport) add(p *packet, void uint64) {
	rec, reason := p.read()
	switch {
	case reason != protocol.None:
		r.Damaged++
		return
	case rec.Position >= void:
		r.Void++
		return
	case r.First == 0:
		r.First = rec.Position
	}
	r.Records++
	r.Bytes += uint64(rec.Length)
	r.Last = rec.Position
}
