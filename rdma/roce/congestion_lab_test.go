package roce

import (
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// The rate of the bottleneck in bits per second, and what a packet of 1024 bytes takes there.
const (
	bottleneck = 20_000_000
	packetBits = 8 * (1024 + 14 + 20 + 8 + 12 + 16 + 4)
)

// division is what two senders did over a bottleneck.
type division struct {
	packets [2]uint64 // that the receiver has acknowledged
	again   uint64    // sent again
	cuts    uint64
}

// TestCongestedLink: two senders over a link of 20 Mbit/s whose queue marks packets (RED) slow down, and send less than half as
// much again as without ECN, where the same queue drops. How they share the link is logged: docs/background/benchmarks.md has
// the goals, which are not met yet.
func TestCongestedLink(t *testing.T) {
	labenv.Guest(t)
	for _, module := range []string{"sch_tbf", "sch_red"} {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			t.Fatalf("load the module %s: %v\n%s", module, err, out)
		}
	}
	testenv.Long(t, "it measures; TestTrafficClass shows that a mark slows a queue pair down")
	const span = 10 * time.Second
	marked := contend(t, 26<<2|wire.ECT0, span)
	dropped := contend(t, 26<<2, span)
	logDivision(t, "roce, marked", marked, span)
	logDivision(t, "roce, not marked", dropped, span)
	if marked.cuts == 0 || dropped.cuts != 0 || dropped.again == 0 || marked.again*2 > dropped.again {
		t.Errorf("with marks %d packets were sent again and there were %d cuts, without %d and %d", marked.again, marked.cuts, dropped.again, dropped.cuts)
	}
}

// logDivision logs a row of the table in docs/background/benchmarks.md.
func logDivision(t *testing.T, name string, s division, span time.Duration) {
	t.Helper()
	rate := float64((s.packets[0]+s.packets[1])*packetBits) / span.Seconds()
	share := float64(slices.Max(s.packets[:])) / float64(max(1, slices.Min(s.packets[:])))
	t.Logf("| %s | %.2f | %.2f | %d |", name, rate/bottleneck, share, s.again)
}

// contend lets two senders write to one receiver for a time. What they do in the first second does not count.
func contend(t *testing.T, class uint8, span time.Duration) (s division) {
	testenv.Leaks(t)
	ends := testenv.NewSwitch(t, 3, testenv.PairOptions{})
	ends[2].Limit(t, bottleneck)
	g := &rig{TB: t, timeout: 18}
	to := g.newSide(ends[2], rigOptions{})
	var running sync.WaitGroup
	for i := range 2 {
		side := g.newSide(ends[i], rigOptions{config: Config{Rate: transport.RateControl{Line: 2 * bottleneck, Decay: 10 * time.Millisecond, Period: 10 * time.Millisecond}, Receive: 4096}})
		a, b := side.newEnd(config(rdma.RC)), to.newEnd(config(rdma.RC))
		there, back := attributes(to, b.qp.QPN(), rdma.MTU1024, side), attributes(side, a.qp.QPN(), rdma.MTU1024, to)
		there.Address.TrafficClass, back.Address.TrafficClass = class, class
		g.must(a.lead(there))
		g.must(b.lead(back))
		running.Go(func() { s.packets[i] = a.writes(b, span) })
		defer func() {
			t.Logf("a sender:%s", side.dev.show())
			s.again += count(side.dev, "packets_again")
			s.cuts += count(side.dev, "rate_cuts")
		}()
	}
	running.Wait()
	t.Logf("the receiver:%s\n%s", to.dev.show(), ends[2].Queue(t))
	return s
}

// writes keeps 32 WRITEs of 16 packets under way, and returns how many packets were acknowledged in a time that begins after a
// second.
func (e *end) writes(to *end, span time.Duration) (packets uint64) {
	const under, of = 32, 16
	var done [under]rdma.WorkCompletion
	free := under
	begin := time.Now()
	for {
		for ; free > 0; free-- {
			e.send(rdma.SendRequest{Op: rdma.Write, RemoteAddr: to.base, RKey: to.memory.RKey()}, e.sge(0, of*1024))
		}
		n, err := e.cq.Spin(done[:], time.Millisecond)
		if err != nil {
			e.Error(err)
			return packets
		}
		for _, c := range done[:n] {
			if c.Status != rdma.Success {
				e.Errorf("a WRITE completes with %v\n%s", c.Status, e.dev.show())
				return packets
			}
		}
		free += n
		switch at := time.Since(begin) - time.Second; {
		case at > span:
			return packets
		case at > 0:
			packets += uint64(n) * of
		}
	}
}
