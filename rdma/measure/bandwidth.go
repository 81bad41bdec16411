package measure

import (
	"errors"
	"fmt"
	"math"
)

// Unit is the unit of bandwidth.
type Unit uint64

const (
	MB Unit = 1 << 20     // "MB" of perftest: 1048576 bytes
	Gb Unit = 125_000_000 // bytes in a gigabit
)

func (u Unit) String() string {
	if u == Gb {
		return "Gb/sec"
	}
	return "MB/sec"
}

// second is one second in the unit of the times.
const second = 1_000_000_000

// peakLimit is the number of messages above which perftest computes no peak.
const peakLimit = 20_000

// Bandwidth is a row of a bandwidth table.
type Bandwidth struct {
	Bytes      uint64 // of a message
	Iterations uint64
	Unit       Unit
	Peak       float64 // of the best interval from a post to a completion; 0: not computed
	Average    float64
	Rate       float64 // millions of messages a second
}

// Transfer has the measurements of messages in one direction. Times are in nanoseconds.
type Transfer struct {
	Bytes uint64 // of a message
	Unit  Unit
	// Posted has the time when each message was posted.
	Posted []uint64
	// Completed has the time when the completion of each message was polled, for each message
	// that has one (each Moderation-th, and the last). The other entries are ignored.
	Completed []uint64
	// Moderation is the number of messages for each completion; 0 means 1.
	Moderation int
}

// Bandwidth computes the row. It computes the peak only if there are at most 20,000 messages,
// because the number of steps is the number of pairs of a message and a completion.
func (t Transfer) Bandwidth() (Bandwidth, error) {
	n := len(t.Posted)
	if n == 0 || n != len(t.Completed) {
		return Bandwidth{}, fmt.Errorf("bandwidth of %d posts and %d completions: there must be as many, and some", n, len(t.Completed))
	}
	b, err := span(t.Bytes, uint64(n), t.Unit, t.Posted[0], t.Completed[n-1])
	if err != nil || n > peakLimit {
		return b, err
	}
	b.Peak = float64(t.Bytes) * second / (float64(t.best()) * float64(t.Unit))
	return b, nil
}

// best returns the least time per message from any post to any completion, cut to whole nanoseconds
// and at least one.
func (t Transfer) best() uint64 {
	step, last := max(t.Moderation, 1), len(t.Posted)-1
	best := uint64(math.MaxUint64)
	for i, posted := range t.Posted {
		for j := i/step*step + step - 1; j <= last; j += step {
			best = min(best, (t.Completed[j]-posted)/uint64(j-i+1))
		}
		best = min(best, (t.Completed[last]-posted)/uint64(last-i+1))
	}
	return max(best, 1)
}

// span returns the row for messages of which only the first post and the last completion are known.
func span(size, messages uint64, unit Unit, posted, completed uint64) (Bandwidth, error) {
	if completed <= posted {
		return Bandwidth{}, errors.New("bandwidth: the last completion is not after the first post")
	}
	ticks := float64(completed - posted)
	n := float64(messages)
	return Bandwidth{Bytes: size, Iterations: messages, Unit: unit,
		Average: float64(size) * n * second / (ticks * float64(unit)), Rate: n * second / (ticks * 1e6)}, nil
}

// Both returns the row of a test in both directions: ours and the peer's together.
func (b Bandwidth) Both(peer Bandwidth) Bandwidth {
	b.Peak += peer.Peak
	b.Average += peer.Average
	b.Rate += peer.Rate
	return b
}
