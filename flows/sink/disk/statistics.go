package disk

import (
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Statistics are encoded Interface Statistics Blocks that wait to be written. They are split into
// parts; each part is at the start of a batch.
type Statistics struct {
	parts [][]byte
	next  int // next part; the worker's
}

// maxStatistics is the largest number of bytes of statistics in one batch. They fit a head of one
// frame.
const maxStatistics = 3 << 10

// add appends a block.
func (s *Statistics) add(of pcapng.Statistics) {
	last := len(s.parts) - 1
	if last < 0 || len(s.parts[last])+pcapng.StatisticsLen > maxStatistics {
		s.parts = append(s.parts, make([]byte, 0, maxStatistics))
		last++
	}
	s.parts[last] = pcapng.AppendStatistics(s.parts[last], of)
}

// NewStatistics encodes blocks.
func NewStatistics(all []pcapng.Statistics) *Statistics {
	s := &Statistics{}
	for _, one := range all {
		s.add(one)
	}
	return s
}

// collectStatistics makes the worker put the source's statistics into the next batches.
func (w *Writer) collectStatistics() {
	if w.statistics == nil {
		return
	}
	if s := NewStatistics(w.statistics()); len(s.parts) > 0 {
		w.WriteStatistics(s)
	}
}

// WriteStatistics makes the worker put statistics into the next batches. No other call may be in
// progress. Any goroutine may call it.
func (w *Writer) WriteStatistics(s *Statistics) {
	s.next = 0
	w.notes.Store(s)
}

// writeNotes puts the next part of the statistics into the open batch, which must be empty. It
// reports whether it could.
func (w *Writer) writeNotes(s *Statistics) bool {
	if !w.layout.Note(s.parts[s.next]) {
		return false
	}
	if s.next++; s.next == len(s.parts) {
		w.notes.CompareAndSwap(s, nil)
	}
	return true
}
