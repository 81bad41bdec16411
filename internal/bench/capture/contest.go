package capture

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	benchcontest "github.com/unifiedd/unifiedd/internal/bench/contest"
)

// The CPUs of the receiver and the sender.
const (
	receiverCPU = 0
	senderCPU   = 1
)

// work is the work of every contestant.
type work struct {
	size int    // bytes of a packet
	rate int    // packets a second
	into string // our layout; empty: the default
}

func (w work) String() string {
	text := fmt.Sprintf("%d bytes, %d/s", w.size, w.rate)
	if w.into != "" {
		text += ", " + w.into
	}
	return text
}

// sample is the result of one run of a contestant.
type sample struct {
	sent   int
	lost   int
	cost   time.Duration // of the machine, beyond that of the traffic
	onDisk int64         // bytes of its files
	stolen float64       // share of the processors' time that this machine's host had
}

// perPacket is the cost of a packet in nanoseconds: at least one, since it is used in a ratio.
func (s sample) perPacket() float64 { return max(1, float64(s.cost)/float64(s.sent)) }

// bytes is the bytes on the disk for each packet that was not lost.
func (s sample) bytes() float64 { return max(1, float64(s.onDisk)/float64(max(1, s.sent-s.lost))) }

// Bars: the cost of a packet, ours over theirs.
const (
	stenotypeBar = 1.5
	passiveBar   = 1.0     // of the passive engine
	bestBar      = 1.0 / 3 // of the best of all others
)

// contest is a case: contestants that do the same work alternately, ours first.
type contest struct {
	work
	names []string
	*rounds
}

// rounds has a sample of each contestant for each round.
type rounds = benchcontest.Contest[sample]

// newContest compares our cost with that of each of the others, and with the best of
// several that are not stenotype. bar is the one for stenotype.
func newContest(w work, bar float64, names []string) *contest {
	c := &contest{work: w, names: names, rounds: &rounds{Name: w.String()}}
	var rest []int
	for i, name := range names[1:] {
		m := benchcontest.Measure[sample]{Case: c.Name + ": " + name, Metric: "machine", Unit: "ns/packet", Better: bench.Less, Theirs: i + 1, Of: sample.perPacket}
		if name == "stenotype" {
			m.Bar = bar
		} else {
			rest = append(rest, i+1)
		}
		c.Measures = append(c.Measures, m)
	}
	if len(rest) > 1 && len(rest) < len(names)-1 {
		c.Measures = append(c.Measures, benchcontest.Measure[sample]{Case: c.Name + ": the best of those", Metric: "machine", Unit: "ns/packet", Better: bench.Less,
			Bar: bestBar, Of: sample.perPacket, OfTheirs: func(round []sample) float64 {
				least := math.Inf(1)
				for _, i := range rest {
					least = min(least, round[i].perPacket())
				}
				return least
			}})
	}
	return c
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
		notes = append(notes, fmt.Sprintf("%s %.0f ns and %.0f bytes on disk a packet, lost %d of %d", name, middle(cost), middle(bytes), lost, sent))
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

func middle(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
