package capture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// The CPUs that have the receiver and the sender.
const (
	receiverCPU = 0
	senderCPU   = 1
)

// work is what every contestant gets to do.
type work struct {
	size int    // bytes of a packet
	rate int    // packets a second
	into string // what layout ours has; empty: its default
}

func (w work) String() string {
	text := fmt.Sprintf("%d bytes, %d/s", w.size, w.rate)
	if w.into != "" {
		text += ", " + w.into
	}
	return text
}

// sample is what one run of a contestant has shown.
type sample struct {
	sent   int
	lost   int
	cost   time.Duration // of the machine, beyond that of the traffic
	onDisk int64         // bytes of its files
	stolen float64       // share of the processors' time that this machine's host had
}

// perPacket is the cost of a packet in nanoseconds: at least one, since a ratio is made of it.
func (s sample) perPacket() float64 { return max(1, float64(s.cost)/float64(s.sent)) }

// bytes is what the disk has for each packet that was not lost.
func (s sample) bytes() float64 { return max(1, float64(s.onDisk)/float64(max(1, s.sent-s.lost))) }

// Bars: what a packet may cost ours for one of theirs.
const (
	stenotypeBar = 1.5
	bestBar      = 1.0 / 3 // of the best of all others
)

// contest is a case and what was measured of it so far: of each contestant a sample for each round, ours the first.
type contest struct {
	work
	bar     float64 // for stenotype
	names   []string
	samples [][]sample
}

func newContest(w work, bar float64, all []contestant) *contest {
	c := &contest{work: w, bar: bar}
	for _, one := range all {
		c.names = append(c.names, one.name)
	}
	c.samples = make([][]sample, len(all))
	return c
}

// add notes a round.
func (c *contest) add(round []sample) {
	for i, s := range round {
		c.samples[i] = append(c.samples[i], s)
	}
}

// comparisons are those of our cost with each of the others, and with the best of several that are not stenotype.
func (c *contest) comparisons() (all []bench.Comparison) {
	var rest []int
	for i, name := range c.names[1:] {
		bar := 0.0
		if name == "stenotype" {
			bar = c.bar
		} else {
			rest = append(rest, i+1)
		}
		all = append(all, c.against(name, bar, func(round int) float64 { return c.samples[i+1][round].perPacket() }))
	}
	if len(rest) > 1 && len(rest) < len(c.names)-1 {
		all = append(all, c.against("the best of those", bestBar, func(round int) float64 {
			least := c.samples[rest[0]][round].perPacket()
			for _, i := range rest[1:] {
				least = min(least, c.samples[i][round].perPacket())
			}
			return least
		}))
	}
	return all
}

// against compares our cost with another.
func (c *contest) against(name string, bar float64, theirs func(round int) float64) bench.Comparison {
	m := bench.Comparison{Case: c.String() + ": " + name, Metric: "machine", Unit: "ns/packet", Better: bench.Less, Bar: bar}
	for round, s := range c.samples[0] {
		m.Pairs = append(m.Pairs, bench.Pair{Ours: s.perPacket(), Theirs: theirs(round)})
	}
	return m
}

// notes say of each contestant what it cost, lost and wrote.
func (c *contest) notes() (all []string) {
	var said []string
	for i, name := range c.names {
		sent, lost, stolen := 0, 0, 0.0
		var cost, bytes []float64
		for _, s := range c.samples[i] {
			sent, lost, stolen = sent+s.sent, lost+s.lost, max(stolen, s.stolen)
			cost, bytes = append(cost, s.perPacket()), append(bytes, s.bytes())
		}
		said = append(said, fmt.Sprintf("%s %.0f ns and %.0f bytes on disk a packet, lost %d of %d", name, middle(cost), middle(bytes), lost, sent))
		if stolen > 0.1 {
			said[i] += fmt.Sprintf(" (the host had up to %.0f %% of the processors: worth nothing)", 100*stolen)
		}
	}
	return []string{c.String() + ": " + strings.Join(said, "; ") + "."}
}

// lossless is an error when ours lost packets where another lost none.
func (c *contest) lossless() error {
	lost := make([]int, len(c.names))
	for i := range c.names {
		for _, s := range c.samples[i] {
			lost[i] += s.lost
		}
	}
	if least := slices.Min(lost); lost[0] > 0 && least == 0 {
		return fmt.Errorf("%s: ours lost %d packets, and %s none", c, lost[0], c.names[slices.Index(lost, 0)])
	}
	return nil
}

func middle(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}
