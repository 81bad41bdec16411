package capture

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/pairs"
)

// The CPUs of the receiver and the sender.
const (
	receiverCPU = 0
	senderCPU   = 1
)

// work is the work of every contestant.
type work struct {
	size int // bytes of a packet
	rate int // packets a second
}

func (w work) String() string { return fmt.Sprintf("%d bytes, %d/s", w.size, w.rate) }

// sample is the result of one run of a contestant.
type sample struct {
	sent   int
	lost   int
	cost   time.Duration // of the machine, beyond that of the traffic
	wall   time.Duration
	onDisk int64   // bytes of its files
	stolen float64 // share of the processors' time that this machine's host had
}

// perPacket is the cost of a packet in nanoseconds: at least one, since it is used in a ratio.
func (s sample) perPacket() float64 { return max(1, float64(s.cost)/float64(s.sent)) }

// bytes is the bytes on the disk for each packet that was not lost.
func (s sample) bytes() float64 { return max(1, float64(s.onDisk)/float64(max(1, s.sent-s.lost))) }

// bars are what the cost of a packet, ours over theirs, must surely be below.
type bars struct {
	stenotype float64
	best      float64 // of the best of all others; 0: none
	level     bool    // the median must not be above stenotype's, nor the bytes on the disk
}

var (
	takenBars   = bars{stenotype: 1.5, best: 1.0 / 3}
	passiveBars = bars{stenotype: 1.25, level: true}
)

// contest is a case: contestants that do the same work alternately, ours first.
type contest struct {
	work
	names []string
	bars
	*rounds
}

// rounds has a sample of each contestant for each round.
type rounds = bench.Contest[sample]

// newContest compares our cost with that of each of the others, and with the best of
// several that are not stenotype.
func newContest(w work, of bars, names []string) *contest {
	c := &contest{work: w, names: names, bars: of, rounds: &rounds{Name: w.String()}}
	var rest []int
	for i, name := range names[1:] {
		m := bench.Measure[sample]{Case: c.Name + ": " + name, Metric: "machine", Unit: "ns/packet", Better: bench.Less, Theirs: i + 1, Of: sample.perPacket}
		if name == "stenotype" {
			m.Bar = of.stenotype
		} else {
			rest = append(rest, i+1)
		}
		c.Measures = append(c.Measures, m)
	}
	if len(rest) > 1 && len(rest) < len(names)-1 {
		c.Measures = append(c.Measures, bench.Measure[sample]{Case: c.Name + ": the best of those", Metric: "machine", Unit: "ns/packet", Better: bench.Less,
			Bar: of.best, Of: sample.perPacket, OfTheirs: func(round []sample) float64 {
				least := math.Inf(1)
				for _, i := range rest {
					least = min(least, round[i].perPacket())
				}
				return least
			}})
	}
	return c
}

// seenBy returns the contest as one of another contestant against all but ours.
func (c *contest) seenBy(one int, of bars) *contest {
	order := []int{one}
	for i := range c.names {
		if i > 0 && i != one {
			order = append(order, i)
		}
	}
	pick := func(i int) string { return c.names[i] }
	other := newContest(c.work, of, mapped(order, pick))
	for _, round := range c.Samples {
		other.Samples = append(other.Samples, mapped(order, func(i int) sample { return round[i] }))
	}
	return other
}

func mapped[T any](order []int, of func(int) T) (all []T) {
	for _, i := range order {
		all = append(all, of(i))
	}
	return all
}

// misses says where ours is not level with stenotype by the median.
func (c *contest) misses() (notes []string) {
	theirs := slices.Index(c.names, "stenotype")
	if theirs < 0 || !c.level {
		return nil
	}
	var costs, ours, bytes []float64
	for _, round := range c.Samples {
		costs = append(costs, round[0].perPacket()/round[theirs].perPacket())
		ours, bytes = append(ours, round[0].bytes()), append(bytes, round[theirs].bytes())
	}
	if m := pairs.Median(costs); m > 1 {
		notes = append(notes, fmt.Sprintf("Missed: %s: a packet costs %.2f of stenotype's by the median.", c.Name, m))
	}
	if a, b := pairs.Median(ours), pairs.Median(bytes); a > b {
		notes = append(notes, fmt.Sprintf("Missed: %s: a packet takes %.1f bytes on the disk, stenotype's %.1f.", c.Name, a, b))
	}
	return notes
}

// addTo adds the results to a report.
func (c *contest) addTo(r *bench.Report) {
	r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	r.Notes = append(r.Notes, c.notes()...)
	r.Notes = append(r.Notes, c.misses()...)
	if err := c.lossless(); err != nil {
		r.Notes = append(r.Notes, "Missed: "+err.Error()+".")
	}
}

// notes lists for each contestant its cost, its losses and the bytes it wrote.
func (c *contest) notes() []string {
	var notes []string
	for i, name := range c.names {
		sent, lost, stolen := 0, 0, 0.0
		var cost, bytes []float64
		for _, round := range c.Samples {
			s := round[i]
			sent, lost, stolen = sent+s.sent, lost+s.lost, max(stolen, s.stolen)
			cost, bytes = append(cost, s.perPacket()), append(bytes, s.bytes())
		}
		notes = append(notes, fmt.Sprintf("%s %.0f ns and %.0f bytes on disk a packet, lost %d of %d", name, pairs.Median(cost), pairs.Median(bytes), lost, sent))
		if stolen > 0.1 {
			notes[i] += fmt.Sprintf(" (the host had up to %.0f %% of the processors: worth nothing)", 100*stolen)
		}
	}
	return []string{c.Name + ": " + strings.Join(notes, "; ") + "."}
}

// lossless returns an error if ours lost packets and another contestant lost none.
func (c *contest) lossless() error {
	lost := make([]int, len(c.names))
	for _, round := range c.Samples {
		for i, s := range round {
			lost[i] += s.lost
		}
	}
	if least := slices.Min(lost); lost[0] > 0 && least == 0 {
		return fmt.Errorf("%s: ours lost %d packets, and %s none", c.Name, lost[0], c.names[slices.Index(lost, 0)])
	}
	return nil
}
