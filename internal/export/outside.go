package export

import (
	"errors"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// slack is how far packets may be out of order, in nanoseconds. Packets of several queues are out of order by
// as much as a worker sleeps.
const slack = uint64(time.Second)

// outside reports whether a segment cannot have wanted packets, given the time of its first packet
// and the latest time in it. Zero means that a time is not known. If the clock was set back during
// the segment, times descend; outside is then false.
func (s *Select) outside(first, last uint64) bool {
	switch {
	case first == 0 || last != 0 && last < first:
		return false
	case s.To != 0 && first >= s.To && first-s.To >= slack:
		return true
	}
	return last != 0 && last < s.From && s.From-last >= slack
}

// bounded reports whether the selection has times.
func (s *Select) bounded() bool { return s.From != 0 || s.To != 0 }

// inside removes the generations of a ring that lie outside the selected times. Each generation ends where
// the next begins.
func (e *Exporter) inside(f io.ReaderAt, r ring.Ring, all []uint64) (in []uint64, err error) {
	if !e.want.bounded() {
		return all, nil
	}
	begin := make([]uint64, len(all)+1)
	for i, g := range all {
		if begin[i], err = r.Begin(f, g); err != nil {
			return nil, err
		}
	}
	for i, g := range all {
		if e.want.outside(begin[i], begin[i+1]) {
			e.sum.Outside++
			continue
		}
		in = append(in, g)
	}
	return in, nil
}

// fileOutside reports whether a segment file lies outside the wanted times.
func (e *Exporter) fileOutside(f io.ReaderAt, size int64) (bool, error) {
	if !e.want.bounded() {
		return false, nil
	}
	t, err := pcapng.ReadTimes(f, size)
	if errors.Is(err, pcapng.ErrNotSegment) {
		return false, nil // the reader will report the error
	}
	if err != nil || !e.want.outside(t.First, t.Last) {
		return false, err
	}
	e.sum.Outside++
	return true, nil
}
