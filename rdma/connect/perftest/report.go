package perftest

import (
	"encoding/binary"
	"math"

	"github.com/unifiedd/unifiedd/rdma/measure"
)

// Report holds the results of one side of a bandwidth test. In a test in one direction the server
// measures nothing: the programs send whatever is in their memory, so a server's report means
// nothing.
type Report struct {
	Size       uint64
	Iterations uint64
	Peak       float64
	Average    float64
	Rate       float64 // millions of messages a second
}

// ReportOf returns the report for a row of a table.
func ReportOf(b measure.Bandwidth) Report {
	return Report{Size: b.Bytes, Iterations: b.Iterations, Peak: b.Peak, Average: b.Average, Rate: b.Rate}
}

// Bandwidth returns the report as a row, in the unit that both sides were started with.
func (r Report) Bandwidth(u measure.Unit) measure.Bandwidth {
	return measure.Bandwidth{Bytes: r.Size, Iterations: r.Iterations, Unit: u, Peak: r.Peak, Average: r.Average, Rate: r.Rate}
}

// words returns the values in the order in which they are sent, big-endian.
func (r Report) words() [5]uint64 {
	return [5]uint64{r.Size, r.Iterations, math.Float64bits(r.Peak), math.Float64bits(r.Average), math.Float64bits(r.Rate)}
}

func reportOf(w [5]uint64) Report {
	return Report{w[0], w[1], math.Float64frombits(w[2]), math.Float64frombits(w[3]), math.Float64frombits(w[4])}
}

func (s *Session) reports(mine Report) (Report, error) {
	var theirs [5]uint64
	for i, w := range mine.words() {
		b, err := s.exchange(binary.BigEndian.AppendUint64(nil, w))
		if err != nil {
			return Report{}, err
		}
		theirs[i] = binary.BigEndian.Uint64(b)
	}
	return reportOf(theirs), nil
}
