package soak

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestSoak: all five flows run for UNIFIEDD_SECONDS while one fault follows another. UNIFIEDD_SEED
// determines the order and the durations. At all times each frame has one owner. After each fault
// the daemon returns to its state before. Its use of resources does not grow. At the end every byte
// is verified and every packet accounted for.
func TestSoak(t *testing.T) {
	testenv.Long(t, "it takes time")
	seconds, seed := setting.Number(t, "UNIFIEDD_SECONDS", 1), setting.Seed(t)
	t.Logf("UNIFIEDD_SECONDS=%d", seconds)
	s := &soaking{rig: newRig(t, forms[0]), random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}}
	s.span = time.Duration(seconds) * time.Second
	s.pid = s.status().PID
	s.steady = s.mark()
	s.run()
	s.report()
}

// soaking is the state of a soak between two faults.
type soaking struct {
	*rig
	random  *rand.Rand
	span    time.Duration
	begun   time.Time
	pid     int
	steady  mark    // before the first fault
	deck    []fault // faults left in this pass over all faults
	counts  map[string]int
	uses    []use // of the daemon: at the start, after a while, in the middle, at the end
	samples uint64
	last    status.Daemon
}

// run causes faults until the time is over.
func (s *soaking) run() {
	s.begun = time.Now()
	s.uses = append(s.uses, measure(s.t, s.daemon, s.pid))
	quarters := 1
	for s.counts["all"] == 0 || time.Since(s.begun) < s.span {
		s.next()
		if passed := int(4 * time.Since(s.begun) / s.span); passed >= quarters && len(s.uses) < 4 {
			s.uses = append(s.uses, measure(s.t, s.daemon, s.pid))
			quarters = passed + 1
		}
		s.counts["all"]++
	}
	s.uses = append(s.uses, measure(s.t, s.daemon, s.pid))
	s.flat()
	s.last = s.leave()
	s.samples = s.watch.halt()
}

// next causes one fault. The fault, its duration and the pause after it are random.
func (s *soaking) next() {
	if len(s.deck) == 0 {
		s.deck = s.faults()
		s.random.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	f := s.deck[0]
	s.deck = s.deck[1:]
	lasts, rests := s.draw(3*time.Second), s.draw(4*time.Second)
	s.t.Logf("%6.1f s: %s for %.1f s", time.Since(s.begun).Seconds(), f.name, lasts.Seconds())
	f.begin(s.rig)
	time.Sleep(lasts)
	f.mend(s.rig)
	s.running(flowNames...)
	s.back(s.steady)
	s.look()
	s.sources.fine(s.t)
	s.sinks.fine(s.t)
	s.counts[f.name]++
	time.Sleep(rests)
}

// draw returns a random duration below a limit.
func (s *soaking) draw(most time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(most)))
}

// What may vary: memory that Go has not yet returned to the kernel, and threads that wait in the kernel.
const (
	spareMemory  = 24 << 20
	spareThreads = 4
)

// flat compares the daemon's use of resources at the end with that after a quarter of the time.
func (s *soaking) flat() {
	if s.span < time.Minute || len(s.uses) < 3 {
		return // too short for a comparison
	}
	was := s.uses[1]
	var now use
	s.await(fmt.Sprintf("the daemon to use no more than %v", was), func() bool {
		now = measure(s.t, s.daemon, s.pid)
		return now.goroutines <= was.goroutines && now.fds <= was.fds
	})
	if now.private > was.private+was.private/4+spareMemory || now.threads > was.threads+spareThreads {
		s.t.Errorf("the daemon uses %v, and used %v", now, was)
	}
}

// report prints what happened.
func (s *soaking) report() {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%.0f s, %d faults; each frame had one owner in each of %d samples\n", time.Since(s.begun).Seconds(), s.counts["all"], s.samples)
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		if name != "all" {
			fmt.Fprintf(w, "  %s\t%d\n", name, s.counts[name])
		}
	}
	fmt.Fprintln(w, "flow\tsent\tverified at the far end\tlost, by reason")
	for _, l := range s.totals() {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", l.flow, l.sent, l.came, l.lost)
	}
	fmt.Fprintln(w, "the daemon uses\tgoroutines\tthreads\tdescriptors\tMiB of objects\tMiB of private memory")
	for i, u := range s.uses {
		when := []string{"in the beginning", "after a quarter", "after a half", "after three quarters", "at the end"}
		name := when[min(i, 3)]
		if i == len(s.uses)-1 {
			name = when[4]
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\t%.1f\n", name, u.goroutines, u.threads, u.fds, float64(u.heap)/(1<<20), float64(u.private)/(1<<20))
	}
	w.Flush()
	s.t.Log(b.String())
}

// total sums up a flow's traffic.
type total struct {
	flow       string
	sent, came uint64
	lost       string
}

func (s *soaking) totals() []total {
	flow := func(name string) status.Flow { return flowOf(s.t, s.last, name) }
	sources, sinks := s.sources, s.sinks
	other := func(name string) total {
		p := flow(name).Sends.Peers[1]
		return total{name + ", other peer", p.Offered, s.otherCame[name] + s.other.of(name).Messages, reasons(p.Dropped)}
	}
	blocks := sources.of("blocks")
	return []total{
		{"capture", s.packets["capture"].sent.Load(), s.captures.packets, reasons(flow("capture").Dropped)},
		{"wal", sources.of("wal").Messages, s.records.last[logSeed], fmt.Sprintf("none (%d again)", s.records.repeated)},
		{"feed", s.packets["feed"].sent.Load(), sinks.of("feed").Messages, reasons(flow("feed").Dropped)},
		other("feed"),
		{"blocks", blocks.Messages + blocks.Refused, blocks.Messages, fmt.Sprintf("%d refused: the disk failed; %d connections ended", blocks.Refused, blocks.Broken)},
		{"relay", sources.of("relay").Messages, sinks.of("relay").Last, fmt.Sprintf("none (%d again)", sinks.of("relay").Repeated)},
		other("relay"),
	}
}

// reasons lists the reasons with a count above zero.
func reasons(by map[string]uint64) string {
	var words []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		if by[why] > 0 {
			words = append(words, fmt.Sprintf("%d %s", by[why], why))
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}
