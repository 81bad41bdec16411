package feed

import (
	"encoding/binary"
	"strings"
)

// Stats is what an Arbiter has done so far.
type Stats struct {
	Session  string // without spaces at its end; empty: none yet
	Given    uint64 // messages
	Lost     uint64 // messages of declared gaps
	Gaps     uint64 // declared
	Requests uint64 // for retransmission
	Ends     uint64 // ends of sessions that were announced
	Sessions uint64 // begun
	Restarts uint64 // of those, without a new name: the sender has restarted and counts from the beginning, or has gone back to the name before
	Lines    []LineStats
}

// LineStats is what an Arbiter has had of one line.
type LineStats struct {
	Wins       uint64            // messages of which this line's copy was given out
	Duplicates uint64            // messages that were there already
	Missing    uint64            // messages that this line left out
	Late       uint64            // messages that came behind later ones; they may be among Missing
	Refused    map[string]uint64 // packets that gave no message, by reason
}

// Stats may be called by any goroutine.
func (a *Arbiter) Stats() Stats {
	t := &a.total
	s := Stats{Given: t.given.Load(), Lost: t.lost.Load(), Gaps: t.gaps.Load(), Requests: t.asks.Load(), Ends: t.ends.Load(), Sessions: t.sessions.Load(), Restarts: t.restarts.Load()}
	if s.Sessions > 0 {
		b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, a.shown[0].Load()), uint16(a.shown[1].Load()))
		s.Session = strings.TrimRight(strings.ToValidUTF8(string(b), "?"), " \x00")
	}
	for i := range a.lines {
		l := &a.lines[i]
		one := LineStats{Wins: l.wins.Load(), Duplicates: l.repeats.Load(), Missing: l.missing.Load(), Late: l.late.Load(), Refused: map[string]uint64{}}
		for r := Good + 1; r < reasons; r++ {
			if n := l.refused[r].Load(); n > 0 {
				one.Refused[r.String()] = n
			}
		}
		s.Lines = append(s.Lines, one)
	}
	return s
}
