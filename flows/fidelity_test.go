package flows

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestSameAsTcpdump compares our file with the packets that tcpdump saw leave the other end, byte for byte
// and in order per queue.
func TestSameAsTcpdump(t *testing.T) {
	testenv.Long(t, "TestFilterLeavesTheRest compares with tcpdump as well")
	for _, layout := range layouts {
		for _, mtu := range testenv.MTUs(1500, 9000) {
			for _, queues := range testenv.Queues(1, 4) {
				t.Run(fmt.Sprintf("%s/MTU %d/%d queues", layout, mtu, queues), func(t *testing.T) {
					sameAsTcpdump(t, layout, testenv.PairOptions{MTU: mtu, Queues: queues, NoAddresses: true})
				})
			}
		}
	}
}

func sameAsTcpdump(t *testing.T, layout string, o testenv.PairOptions) {
	l := newLab(t, o)
	f := l.start(t, l.defaults(layout), Options{}).Flows()[0]
	dump := startTcpdump(t, &l.A)
	frames := l.traffic()
	l.send(t, f, frames)
	theirs := dump.stop(t, len(frames), total(frames))
	samePackets(t, "tcpdump of what was sent", theirs, frames)
	await(t, f, "all packets written", func(s status.Flow) bool { return s.Written.Packets >= uint64(len(frames)) })
	testenv.Must(t, f.Stop())
	captures.Readable(t, l.files(t)...)
	ours := captures.Records(t, l.files(t)...)
	sameInQueues(t, ours, theirs, l.Queues)
	balanced(t, f.Status(), uint64(len(frames)))
}

// usualRounds is how often traffic repeats if UNIFIEDD_ROUNDS is not set.
var usualRounds = 1 + testenv.Fewer(3)

// traffic repeats the zoo UNIFIEDD_ROUNDS times, mixed with packets of all sizes from many ports, so that
// every queue gets some.
func (l *lab) traffic() (frames [][]byte) {
	zoo := testenv.Frames(testenv.Zoo(&l.A, &l.B, l.MTU))
	for round := range fromEnvironment("UNIFIEDD_ROUNDS", usualRounds) {
		frames = append(frames, zoo...)
		for i := range 300 {
			size := 60 + (i*61+round*17)%(l.MTU+14-60+1)
			frames = append(frames, testenv.UDP(&l.A, &l.B, uint16(1000+i%16), uint64(round*1000+i), size))
		}
	}
	return frames
}

// fromEnvironment returns the number in an environment variable, or usual if it has none. The long forms of
// tests set it.
func fromEnvironment(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return usual
}

func total(frames [][]byte) (n int) {
	for _, f := range frames {
		n += len(f)
	}
	return n
}

// sameInQueues checks that each of our queues has the packets that tcpdump saw, in tcpdump's order. Packets
// with the same bytes must be in one queue.
func sameInQueues(t *testing.T, ours []testenv.Captured, theirs [][]byte, queues int) {
	t.Helper()
	if len(ours) != len(theirs) {
		t.Errorf("we have %d packets, tcpdump %d", len(ours), len(theirs))
	}
	of, got := map[string]int{}, make([][][]byte, queues)
	for i, r := range ours {
		if r.Interface >= queues {
			t.Fatalf("packet %d is of interface %d", i, r.Interface)
		}
		if q, ok := of[string(r.Data)]; ok && q != r.Interface {
			t.Fatalf("packet %d came by queue %d and before by %d: %x", i, r.Interface, q, r.Data)
		}
		of[string(r.Data)] = r.Interface
		got[r.Interface] = append(got[r.Interface], r.Data)
	}
	want := make([][][]byte, queues)
	for i, data := range theirs {
		q, ok := of[string(data)]
		if !ok {
			t.Errorf("we miss packet %d: %x", i, data)
			return
		}
		want[q] = append(want[q], data)
	}
	for q := range want {
		samePackets(t, fmt.Sprintf("queue %d", q), got[q], want[q])
		if len(got[q]) == 0 {
			t.Errorf("queue %d had no packets: the test shows nothing", q)
		}
	}
}

// balanced checks that a flow's counters account for every packet offered.
func balanced(t *testing.T, s status.Flow, offered uint64) {
	t.Helper()
	sum := s.Packets + s.Waiting
	for _, n := range s.Passed {
		sum += n
	}
	for reason, n := range s.Dropped {
		if reason != "beyond_count" && reason != "write_failed" {
			sum += n
		}
	}
	if s.Offered != offered || s.Missing != 0 || sum != offered {
		t.Errorf("%d packets were sent; offered %d, missing %d, reasons %d: %+v", offered, s.Offered, s.Missing, sum, s)
	}
}

// TestFilterLeavesTheRest: a flow captures the packets that tcpdump selects by the same expression. The host
// gets the other packets and still answers.
func TestFilterLeavesTheRest(t *testing.T) {
	for _, layout := range oneOf(t, layouts...) {
		t.Run(layout, func(t *testing.T) {
			const expression = "udp portrange 1002-1013 or igmp or sctp"
			l := newLab(t, testenv.PairOptions{MTU: 9000, Queues: 2})
			text := strings.Replace(l.defaults(layout), "ring: 2048", `ring: 2048, filter: "`+expression+`"`, 1)
			f := l.start(t, text, Options{}).Flows()[0]
			dump := startTcpdump(t, &l.A)
			frames := l.traffic()
			l.send(t, f, frames)
			if out := l.A.Run(t, "ping", "-c3", "-i0.05", "-W5", l.B.IP.String()); !strings.Contains(out, " 0% packet loss") {
				t.Errorf("the host does not answer any more: %s", out)
			}
			all := dump.stop(t, len(frames), total(frames))
			theirs := dump.selected(t, expression)
			await(t, f, "the selected packets written", func(s status.Flow) bool { return s.Written.Packets >= uint64(len(theirs)) })
			testenv.Must(t, f.Stop())
			if len(theirs) == 0 || len(theirs) == len(all) {
				t.Fatalf("tcpdump selects %d of %d: the test shows nothing", len(theirs), len(all))
			}
			sameInQueues(t, captures.Records(t, l.files(t)...), theirs, l.Queues)
			s := f.Status()
			balanced(t, s, s.Offered)
			if s.Passed["kernel_no_match"] < uint64(len(all)-len(theirs)) {
				t.Errorf("%d of %d packets did not match, %v are counted", len(all)-len(theirs), len(all), s.Passed)
			}
		})
	}
}

// TestLiveFile: a packet is in the file of a running capture within a second, and a reader of that file
// reports at most one error.
func TestLiveFile(t *testing.T) {
	testenv.Long(t, "it bounds times")
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			text := strings.Replace(l.defaults(layout), "flush: 100ms, ", "", 1) // the default
			f := l.start(t, text, Options{}).Flows()[0]
			sender := testenv.NewSender(t, &l.A)
			quickest := time.Hour // a busy machine makes some late, and none early
			for i := range 4 {
				begin := time.Now()
				if _, err := sender.Send(testenv.UDP(&l.A, &l.B, 9, uint64(i), 200)); err != nil {
					t.Fatal(err)
				}
				testenv.Wait(t, 30*time.Second, "the packet to be readable", func() bool { return len(l.live(t)) > i })
				quickest = min(quickest, time.Since(begin))
			}
			if quickest > testenv.Within(time.Second) {
				t.Errorf("the quickest of the packets took %v to be readable", quickest)
			}
			for program, args := range captures.StandardReaders {
				lines, _ := captures.Complaints(testenv.Tool(t, program), append(slices.Clone(args), l.files(t)[0])...)
				if !aboutTail(lines) {
					t.Errorf("%s of a live file says %q", program, lines)
				}
			}
			testenv.Must(t, f.Stop())
			captures.Readable(t, l.files(t)...)
		})
	}
}

// aboutTail reports whether a reader printed at most one error, about the end of the file. An error may have
// several lines.
func aboutTail(lines []string) bool {
	said := strings.Join(lines, "\n")
	return len(lines) <= 1 || strings.Count(said, "damaged or corrupt") == 1 && strings.Count(said, "block length") == 1 && len(lines) <= 3
}

// live reads the packets that the running capture has written so far.
func (l *lab) live(t *testing.T) []testenv.Captured {
	t.Helper()
	files := l.files(t)
	if len(files) == 0 {
		return nil
	}
	return captures.Records(t, files...)
}

// TestTimesAndStatistics captures some seconds of steady traffic. Each packet's time is between the start and
// the end of the test, and the file has the packet counts for each second.
func TestTimesAndStatistics(t *testing.T) {
	testenv.Long(t, "it needs some seconds of traffic, and nothing more happens than elsewhere")
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			const queues, seconds, rate = 2, 2, 4000
			l := newLab(t, testenv.PairOptions{NoAddresses: true, Queues: queues})
			f := l.start(t, strings.Replace(l.defaults(layout), "ring: 2048", "ring: 8192", 1), Options{}).Flows()[0]
			var frames [][]byte
			for i := range testenv.Fewer(seconds * rate) {
				frames = append(frames, testenv.UDP(&l.A, &l.B, uint16(1000+i%16), uint64(i), 60+i%500))
			}
			begin := time.Now()
			sent := l.feed(t, f, frames, rate)
			await(t, f, "all packets written", func(s status.Flow) bool { return s.Written.Packets == uint64(sent) })
			end := time.Now()
			testenv.Must(t, f.Stop())
			all := captures.Records(t, l.files(t)...)
			timesPlausible(t, all, begin, end)
			statisticsTrue(t, blocksOf(t, l.files(t)...), all, seconds)
			for q, n := range countedStatistics(t, l.files(t)[0]) {
				if n < seconds {
					t.Errorf("capinfos finds %d statistics of queue %d in %d seconds", n, q, seconds)
				}
			}
			balanced(t, f.Status(), uint64(sent))
		})
	}
}

// TestStatisticsOfManyQueues: the file has the statistics of each queue, although those of all queues do not
// fit one batch.
func TestStatisticsOfManyQueues(t *testing.T) {
	const queues = 40
	for _, layout := range oneOf(t, layouts...) {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true, Queues: queues})
			f := l.start(t, strings.Replace(l.defaults(layout), "ring: 2048", "ring: 64", 1), Options{}).Flows()[0]
			l.feed(t, f, [][]byte{testenv.UDP(&l.A, &l.B, 1000, 0, 60)}, 1000) // a file begins with its first packet
			stopped(t, f)
			found := map[int]int{}
			for _, b := range blocksOf(t, l.files(t)...) {
				if b.kind == typeStatistics {
					found[parseStatistic(b).iface]++
				}
			}
			if len(found) != queues {
				t.Errorf("%d of %d queues have statistics", len(found), queues)
			}
		})
	}
}

// timesPlausible checks that times are between begin and end, never go back within a queue, and have
// nanoseconds.
func timesPlausible(t *testing.T, all []testenv.Captured, begin, end time.Time) {
	t.Helper()
	const slack = int64(time.Millisecond) // the wall clock may be adjusted during the test
	last, fine := map[int]int64{}, 0
	for i, r := range all {
		if r.Time < begin.UnixNano()-slack || r.Time > end.UnixNano()+slack {
			t.Fatalf("packet %d came at %v, was sent after %v and seen before %v", i, time.Unix(0, r.Time), begin, end)
		}
		if r.Time < last[r.Interface] {
			t.Errorf("packet %d of queue %d came %d ns before the one before it", i, r.Interface, last[r.Interface]-r.Time)
		}
		last[r.Interface] = r.Time
		if r.Time%1000 != 0 {
			fine++
		}
	}
	if fine < len(all)/2 {
		t.Errorf("%d of %d times have nanoseconds", fine, len(all))
	}
}

// statistic is an Interface Statistics Block.
type statistic struct {
	iface int
	time  int64
	opts  map[uint16]uint64
}

func parseStatistic(b block) statistic {
	le := binary.LittleEndian
	s := statistic{int(le.Uint32(b.body)), int64(le.Uint32(b.body[4:]))<<32 | int64(le.Uint32(b.body[8:])), map[uint16]uint64{}}
	for o := b.body[12:]; len(o) >= 4 && le.Uint16(o) != 0; o = o[4+(le.Uint16(o[2:])+3)&^3:] {
		if le.Uint16(o[2:]) == 8 {
			s.opts[le.Uint16(o)] = le.Uint64(o[4:])
		}
	}
	return s
}

// statisticsTrue checks that there are statistics for each second, that no count
// runs ahead of the packets or falls, and that the last ones are exact.
func statisticsTrue(t *testing.T, all []block, packets []testenv.Captured, seconds int) {
	t.Helper()
	const accepted, lost, delivered = 6, 7, 8
	count, last := map[int]uint64{}, map[int]statistic{}
	found := map[int]int{}
	for _, r := range packets {
		count[r.Interface]++
	}
	for _, b := range all {
		if b.kind != typeStatistics {
			continue
		}
		s := parseStatistic(b)
		before, again := last[s.iface]
		if gap := s.time - before.time; again && (gap < 0 || gap > int64(3*time.Second)) {
			t.Errorf("statistics of queue %d come %v after the last", s.iface, time.Duration(gap))
		}
		if s.opts[delivered] < before.opts[delivered] || s.opts[delivered] > count[s.iface] {
			t.Errorf("queue %d had %d packets delivered, before %d, in the end %d", s.iface, s.opts[delivered], before.opts[delivered], count[s.iface])
		}
		last[s.iface] = s
		found[s.iface]++
	}
	for q, n := range count {
		s := last[q]
		if s.opts[delivered] != n || s.opts[accepted] != n || s.opts[lost] != 0 {
			t.Errorf("the last statistics of queue %d are %v, the file has %d packets", q, s.opts, n)
		}
		if found[q] < seconds {
			t.Errorf("queue %d has %d statistics in %d seconds", q, found[q], seconds)
		}
	}
}
