package journal

import "slices"

// Epochs describes the epochs of a group's log.
type Epochs struct {
	// Table has the newest epochs, in order. It may lack older ones.
	Table []Epoch
	// Last is the epoch of the last record; 0: it has none.
	Last uint64

	position uint64 // of the last record that was added
}

// add adds a record behind those added before. The table may have come from a manifest. The manifest
// is a little older than the log, or describes records that were cut off.
func (e *Epochs) add(rec *Record) {
	number, first := uint64(rec.Epoch), e.position == 0
	e.position = rec.Position
	switch {
	case number == e.Last && !first:
		return
	case rec.Control(): // it begins the epoch
		e.cut(rec.Position)
		e.Table = append(newest(e.Table, mostEpochs-1), Epoch{number, rec.Position})
	case !first || !e.knows(number, rec.Position): // the record that began the epoch is lost, or was not read
		e.Table = nil
		if number > 0 {
			e.Table = []Epoch{{number, rec.Position}}
		}
	}
	e.Last = number
}

// knows reports whether the table says that the record at a position is of an epoch. Later epochs are
// removed.
func (e *Epochs) knows(number, position uint64) bool {
	for i, one := range slices.Backward(e.Table) {
		if one.First <= position {
			e.Table = e.Table[:i+1]
			return one.Number == number
		}
	}
	return false
}

// cut removes the epochs that begin at a position or later.
func (e *Epochs) cut(next uint64) {
	for n := len(e.Table); n > 0 && e.Table[n-1].First >= next; n-- {
		e.Table = e.Table[:n-1]
	}
}

// end says that the next record has a position. If no record was added, the table says which epoch
// the last one had.
func (e *Epochs) end(next uint64) {
	if e.cut(next); e.position == 0 && len(e.Table) > 0 {
		e.Last = e.Table[len(e.Table)-1].Number
	}
}
