package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/unifiedd/unifiedd/internal/ring"
)

// End is the state in which a log was left.
type End struct {
	Next     uint64    // position of the next record to write: 1 for a new log
	Sessions Sessions  // the most recent ones
	Gaps     []*Gap    // durable records of the newest segments that are lost: the first 1000
	Lost     uint64    // records in all of them
	Manifest *Manifest // nil: the log has none
	Epochs   Epochs    // of a group's log
}

// Grouped reports whether the log belongs to a group.
func (e *End) Grouped() bool {
	return e.Epochs.Last > 0 || e.Manifest != nil && e.Manifest.Flags&FlagGroup != 0
}

const (
	// looked is how many bytes of segments are read at least, to find sessions.
	looked = 64 << 20
)

// Tail finds the end of a log that no flow writes. It must be called before the segments are
// recovered, while they show what the writer knew to be durable. PATH is as for Open; a device may
// also have no ring yet. If the log lacks what its manifest names, or a head cannot be read, the
// error is a *DamagedError: the log must not be continued.
func Tail(path string) (End, error) { return TailBefore(path, never) }

// TailBefore is Tail for a log whose records from a position on are to be cut off. The next run of the
// flow does that: it begins at End.Next, and its manifest says so.
func TailBefore(path string, before uint64) (End, error) {
	l, err := Open(path)
	if errors.Is(err, ring.ErrNone) {
		return End{Next: 1}, nil
	}
	if err != nil {
		return End{}, err
	}
	m, damage, err := l.check()
	end := End{}
	switch {
	case err != nil:
	case len(damage) > 0:
		return end, errors.Join(&DamagedError{path, damage}, l.Close())
	default:
		end, err = l.tail(m, looked, before)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return End{}, fmt.Errorf("find the end of log %s: %w", path, err)
	}
	return end, nil
}

func (l *Log) tail(m *Manifest, least int64, before uint64) (End, error) {
	r := l.all(0)
	r.alone, r.before = true, before
	r.durableBefore = min(r.durableBefore, before)
	err := r.beginLate(least)
	if err == io.EOF {
		err = nil // there is no segment; according to the manifest there may have been records
	}
	end := End{Manifest: m}
	if m != nil {
		end.Epochs.Table = slices.Clone(m.Epochs)
	}
	for err == nil {
		err = r.follow(&end)
	}
	if err == io.EOF {
		err = nil
	}
	end.Next = min(max(r.next, 1), before) // segments that keep has left may all begin behind what is cut off
	end.Epochs.end(end.Next)
	return end, errors.Join(err, r.Close())
}

// follow processes the next record.
func (r *Reader) follow(end *End) error {
	rec, err := r.Next()
	if g, ok := errors.AsType[*Gap](err); ok {
		if end.Lost += g.Records; len(end.Gaps) < mostGaps {
			end.Gaps = append(end.Gaps, g)
		}
		if g.Session != 0 {
			end.Sessions.Note(g.Session, Mark{g.Sequence, g.Owner})
		}
		return nil
	}
	if err == nil {
		end.Epochs.add(&rec)
		if !rec.Control() {
			end.Sessions.Note(rec.Session, Mark{rec.Sequence, rec.Owner})
		}
	}
	return err
}

// mostOpen limits the number of the newest segments of a run that may not be durable. A flow has at
// most that many segments open; see package flows/segment.
const mostOpen = 17

// beginLate begins at the newest segment that meets three conditions: the log has enough bytes from
// there on, nothing of the segment's run can be missing before it, and its first record is not void. A segment
// whose records are all void counts for nothing: the log ends before it.
func (r *Reader) beginLate(least int64) error {
	all, err := r.set.list(0)
	if err != nil {
		return err
	}
	var size int64
	var later segmentSummary
	newer := 0       // later segments of the same run
	void := r.before // records from here on belong to later runs
	for i := len(all) - 1; i > 0; i-- {
		g, err := r.summarize(all[i])
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		if g.run != later.run {
			newer = 0
			if later.run != 0 {
				void = min(void, later.start)
			}
		}
		later = g
		valid := g.first > 0 && g.first < min(void, r.voidBy(g.run, all[i].number))
		if valid {
			size += g.size
		}
		if valid && size >= least && (g.durable || newer >= mostOpen || r.isAnother(all[i-1], g.run)) {
			return r.beginOldest(all[i:])
		}
		if g.first > 0 {
			newer++
		}
	}
	return r.beginOldest(all)
}

// voidBy returns the position from which on the records of a run's segment are void because of runs of the manifest that
// come later: the newest may have no segment yet.
func (r *Reader) voidBy(run, segment uint64) uint64 {
	from := uint64(never)
	for _, one := range r.planned {
		if one.Number != run && one.Segment > segment {
			from = min(from, one.Start)
		}
	}
	return from
}

// segmentSummary is the information about a segment that beginLate needs.
type segmentSummary struct {
	run     uint64
	start   uint64 // of the run
	size    int64
	first   uint64 // position of its first record; 0: it has no intact one
	durable bool   // its writer knew that a part of it was durable, and so all earlier segments
}

func (r *Reader) summarize(p piece) (g segmentSummary, err error) {
	s, err := r.set.open(p)
	if err != nil {
		return g, err
	}
	g.run, g.start = s.run, s.start
	g.size, err = s.size()
	if err == nil {
		g.durable, err = s.walk.Durable(0)
	}
	if err == nil {
		g.first, err = s.begins()
	}
	return g, errors.Join(err, s.Close())
}

// isAnother reports whether a segment is known to belong to another run.
func (r *Reader) isAnother(p piece, run uint64) bool {
	o, err := r.origin(p)
	return err == nil && o.run != run
}
