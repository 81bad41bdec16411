package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Damage is a part of a log that should exist and does not, or whose state cannot be determined.
type Damage struct {
	First, Last uint64 // segments; 0: the manifest
	Name        string
	Err         error
}

func (d *Damage) Error() string {
	switch {
	case d.First == 0:
		return d.Err.Error()
	case d.First == d.Last:
		return fmt.Sprintf("segment %d (%s): %v", d.First, d.Name, d.Err)
	}
	return fmt.Sprintf("segments %d to %d: %v", d.First, d.Last, d.Err)
}

func (d *Damage) Unwrap() error { return d.Err }

// DamagedError means that a log must be repaired before it is continued.
type DamagedError struct {
	Path   string
	Damage []*Damage // at least one
}

func (e *DamagedError) Error() string {
	more := ""
	if n := len(e.Damage) - 1; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return fmt.Sprintf("log %s is damaged: %v%s (see all with 'unifiedd log verify %s'; 'unifiedd log repair %s' says what can be kept, and mends it)",
		e.Path, e.Damage[0], more, e.Path, e.Path)
}

func (e *DamagedError) Unwrap() error { return e.Damage[0] }

var (
	errMissing  = errors.New("it is not there, and the manifest names it")
	errWrongRun = errors.New("its head says that it is of another run than the manifest does")
	errOrder    = errors.New("its records come before those of an earlier segment (was a file renamed or copied?)")
)

// check compares a log with its manifest. If a flow wrote to the log during the comparison, check
// tries again. Without a manifest m is nil, and every file with the name of a segment must be a
// segment.
func (l *Log) check() (m *Manifest, all []*Damage, err error) {
	for {
		m, all, err = l.checkOnce()
		if err != nil || len(all) == 0 || m == nil {
			return m, all, err
		}
		if now, _, err := l.set.manifest(); err != nil || now.Generation == m.Generation {
			return m, all, nil
		}
	}
}

func (l *Log) checkOnce() (m *Manifest, all []*Damage, err error) {
	now, _, err := l.set.manifest()
	switch {
	case err == nil:
		m = &now
	case errors.Is(err, errManifest):
		all = append(all, &Damage{Err: err})
	case !errors.Is(err, errNoManifest):
		return nil, nil, err
	}
	found, damaged, err := l.heads(m)
	if err != nil {
		return nil, nil, err
	}
	all = append(all, damaged...)
	if m == nil {
		return nil, all, nil
	}
	for _, d := range damaged {
		found = append(found, d.First)
	}
	slices.Sort(found)
	return m, append(all, l.missing(m, found)...), nil
}

// heads reads the head of each segment, and returns which segments there are and which are damaged.
func (l *Log) heads(m *Manifest) (found []uint64, damaged []*Damage, err error) {
	list, err := l.set.list(0)
	if err != nil {
		return nil, nil, err
	}
	suspects, err := l.set.suspects(m)
	if err != nil {
		return nil, nil, err
	}
	first := map[uint64]uint64{} // by run: the first position of the newest segment so far
	for _, p := range append(list, suspects...) {
		bad, err := l.head(p, m, first)
		switch {
		case errors.Is(err, errAbsent):
		case err != nil:
			return nil, nil, err
		case bad != nil:
			damaged = append(damaged, &Damage{p.number, p.number, p.name, bad})
		default:
			found = append(found, p.number)
		}
	}
	return found, damaged, nil
}

// head returns what is wrong with the head of a segment. first has the first positions of earlier
// segments by run; head updates it. errAbsent means that there is no segment, and that none is
// required.
func (l *Log) head(p piece, m *Manifest, first map[uint64]uint64) (bad, err error) {
	s, err := l.set.open(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errAbsent
	case errors.Is(err, errAbsent):
		if m != nil && p.number < m.Oldest || p.ahead && (m == nil || !m.Names(p.number)) && !hasBatches(p.path) {
			return nil, errAbsent
		}
		return err, nil
	case err != nil:
		return nil, err
	}
	if m != nil && m.Names(p.number) {
		if r, ok := m.runOf(p.number); ok && (r.Number != s.run || r.Start != s.start) {
			bad = fmt.Errorf("%w: run %016x from position %d, and not run %016x from position %d", errWrongRun, s.run, s.start, r.Number, r.Start)
		}
	}
	if bad == nil && !p.ahead {
		at, err := s.begins()
		if err != nil { // reading the records reports it
			at = 0
		}
		if at > 0 && at <= first[s.run] {
			bad = errOrder
		}
		first[s.run] = max(first[s.run], at)
	}
	return bad, s.Close()
}

// hasBatches reports whether a file without a head has batches.
func hasBatches(path string) (found bool) {
	f, size, err := openFile(path)
	if err != nil {
		return false
	}
	defer f.Close()
	err = pcapng.EachMark(f, size, func(pcapng.Batch) bool { found = true; return false })
	return found || err != nil
}

// missing returns the segments that a manifest names and that were not found.
func (l *Log) missing(m *Manifest, found []uint64) (all []*Damage) {
	add := func(first, last uint64) {
		for first <= last {
			for _, a := range m.Absent {
				if first >= a.First && first <= a.Last {
					first = a.Last + 1
				}
			}
			end := last
			for _, a := range m.Absent {
				if a.First > first && a.First <= end {
					end = a.First - 1
				}
			}
			if first <= end {
				all = append(all, &Damage{first, end, l.set.piece(first).name, errMissing})
			}
			first = end + 1
		}
	}
	next := m.Oldest
	for _, n := range found {
		if n > next {
			add(next, min(n-1, m.Newest))
		}
		next = max(next, n+1)
	}
	if next <= m.Newest {
		add(next, m.Newest)
	}
	return all
}
