package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// statistics are Interface Statistics Blocks that wait to be written, in parts: each
// goes first in a batch.
type statistics struct {
	parts [][]byte
	next  int // the worker's
}

// statisticsRoom is the most bytes of statistics in one batch: what a head of one
// frame has room for.
const statisticsRoom = 3 << 10

// add appends a block.
func (s *statistics) add(of pcapng.Statistics) {
	last := len(s.parts) - 1
	if last < 0 || len(s.parts[last])+pcapng.StatisticsLen > statisticsRoom {
		s.parts = append(s.parts, make([]byte, 0, statisticsRoom))
		last++
	}
	s.parts[last] = pcapng.AppendStatistics(s.parts[last], of)
}

// announceStatistics hands the worker an Interface Statistics Block for each
// queue, to be put into the next batches.
func (n *networkStorage) announceStatistics() {
	now := uint64(time.Now().UnixNano())
	var all statistics
	for i := range n.sources { // not a copy of each: the rest of a source is the worker's
		src := &n.sources[i]
		st, err := src.port.Stats()
		if err != nil {
			continue
		}
		lost := st.Kernel.Dropped + st.Kernel.RingFull
		all.add(pcapng.Statistics{
			Interface: src.id, Time: now, Start: uint64(n.started.UnixNano()), End: now,
			Received: pcapng.Unknown, Dropped: pcapng.Unknown,
			Accepted: st.Received.Packets + st.Waiting + lost, OSDropped: lost, Delivered: st.Received.Packets,
		})
	}
	if len(all.parts) > 0 {
		n.notes.Store(&all)
	}
}

// noteNext puts the next part of the statistics that wait into the open batch, which
// must be empty, and reports whether it could.
func (w *writer) noteNext(s *statistics) bool {
	if !w.layout.Note(s.parts[s.next]) {
		return false
	}
	if s.next++; s.next == len(s.parts) {
		w.notes.CompareAndSwap(s, nil)
	}
	return true
}
