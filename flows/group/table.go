package group

import (
	"fmt"
	"slices"
)

// Place is a record's place in a log: the epoch in which a leader appended it, and its position.
type Place struct{ Epoch, Position uint64 }

// Less reports whether a log that ends at p is older than one that ends at q.
func (p Place) Less(q Place) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Position < q.Position
}

func (p Place) String() string { return fmt.Sprintf("position %d of epoch %d", p.Position, p.Epoch) }

// Span says that the records from First on are of an epoch, up to the next span.
type Span struct{ Epoch, First uint64 }

// Table has the newest epochs of a log, in order. Two logs with the same epoch at the same position
// are equal up to there.
type Table []Span

// maxSpans is how many epochs a table has at most. Where an older one matters, the committed position
// decides.
const maxSpans = 64

// Append adds a record at the end.
func (t Table) Append(p Place) Table {
	if n := len(t); n > 0 && t[n-1].Epoch == p.Epoch {
		return t
	}
	if len(t) == maxSpans {
		t = slices.Delete(t, 0, 1)
	}
	return append(t, Span{p.Epoch, p.Position})
}

// Cut removes the records after a position, and returns the new end. If the table does not reach
// back to the position, the epoch of the end is not known, and 0.
func (t Table) Cut(position uint64) (Table, Place) {
	for len(t) > 0 && t[len(t)-1].First > position {
		t = t[:len(t)-1]
	}
	if len(t) == 0 {
		return t, Place{0, position}
	}
	return t, Place{t[len(t)-1].Epoch, position}
}

// Check reports whether a table from another member is possible for a log that ends at a place.
func (t Table) Check(end Place) error {
	if len(t) > maxSpans {
		return fmt.Errorf("%d epochs: there are %d at most", len(t), maxSpans)
	}
	last := Span{}
	for _, s := range t {
		if s.Epoch <= last.Epoch || s.First <= last.First {
			return fmt.Errorf("epoch %d at position %d follows epoch %d at %d", s.Epoch, s.First, last.Epoch, last.First)
		}
		last = s
	}
	if len(t) > 0 && (last.Epoch != end.Epoch || last.First > end.Position) || len(t) == 0 && end.Epoch != 0 {
		return fmt.Errorf("the newest epoch is %d from position %d on, and the log ends at %v", last.Epoch, last.First, end)
	}
	return nil
}

// Log describes a member's log.
type Log struct {
	End        Place
	Table      Table
	Committed  uint64 // a lower bound
	Recovering bool   // it may lack records that the member acknowledged
}

// Append adds a record at the end. It returns false, and changes nothing, if the record does not follow
// the last one.
func (l *Log) Append(p Place) bool {
	if p.Position != l.End.Position+1 || p.Epoch < l.End.Epoch {
		return false
	}
	l.End, l.Table = p, l.Table.Append(p)
	return true
}

// Cut removes the records after a position.
func (l *Log) Cut(after uint64) {
	if after < l.End.Position {
		l.Table, l.End = l.Table.Cut(after)
	}
}

// Agree returns the last position up to which two logs are certainly equal.
func Agree(a, b Log) uint64 {
	agreed := min(a.Committed, b.Committed) // committed prefixes are equal
	for i, endA := len(a.Table)-1, a.End.Position; i >= 0; i-- {
		s := a.Table[i]
		if j, found := slices.BinarySearchFunc(b.Table, s.Epoch, func(s Span, epoch uint64) int {
			switch {
			case s.Epoch < epoch:
				return -1
			case s.Epoch > epoch:
				return 1
			}
			return 0
		}); found {
			endB := b.End.Position
			if j+1 < len(b.Table) {
				endB = b.Table[j+1].First - 1
			}
			return max(agreed, min(endA, endB))
		}
		endA = s.First - 1
	}
	return agreed
}
