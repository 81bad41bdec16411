package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// matrix has the options that xdp-bench tests, under our names.
var matrix = map[string][]string{
	"default":       nil,
	"copy":          {"-zero-copy", "copy"},
	"spin":          {"-wait", "spin"},
	"poll":          {"-wait", "poll"},
	"sleep":         {"-wait", "sleep", "-sleep", "100us"},
	"busy poll":     {"-busy-poll", "50us", "-wait", "poll"},
	"small frames":  {"-frame", "2048"},
	"always wake":   {"-always-wake"},
	"generic":       {"-generic"},
	"multi-buffer":  {"-multi-buffer"},
	"ordinary":      {"-pages", "ordinary"},
	"one processor": {"-cpus", "0", "-wait", "poll"},
}

// ring has room for all packets of a test, so that a receiver that gets no processor time loses
// none.
const ring = "-ring=2048"

// TestReceiveMatrix: one instance receives the packets that another sends, with each option at each
// end that supports it.
func TestReceiveMatrix(t *testing.T) {
	const packets = 2000
	pair := newPair(t, testenv.PairOptions{})
	for name, args := range matrix {
		t.Run(name, func(t *testing.T) {
			args := append([]string{ring, "-json"}, args...)
			to := start(t, &pair.B, append(args, "-rx", "-duration", "30s", "-count", strconv.Itoa(packets), "-filter", ownFilter)...)
			from := start(t, &pair.A, append(args, "-tx", "-count", strconv.Itoa(packets), "-rate", "10000", "-size", "1000")...)
			s, r := from.must(), to.must()
			if s.Sent != packets || s.Finished != packets || s.BytesOut != packets*1000 {
				t.Errorf("sent %+v", s)
			}
			if r.Received != packets || r.BytesIn != packets*1000 || r.Lost != 0 {
				t.Errorf("received %+v", r)
			}
			if r.Granted.ZeroCopy || r.Granted.WhyCopy == "" {
				t.Errorf("a veth pair has no zero copy, and it must be said why: %+v", r.Granted)
			}
			if want := map[bool]string{true: "generic", false: "driver"}[name == "generic"]; r.Granted.Program != want {
				t.Errorf("the program runs in %s mode", r.Granted.Program)
			}
		})
	}
}

// TestEchoMatrix: packets return from the echo, with each option.
func TestEchoMatrix(t *testing.T) {
	const packets = 300
	pair := newPair(t, testenv.PairOptions{})
	for name, args := range matrix {
		t.Run(name, func(t *testing.T) {
			args := append([]string{ring, "-json"}, args...)
			far := start(t, &pair.B, append(args, "-echo", "-duration", "40s")...)
			near := start(t, &pair.A, append(args, "-ping", "-count", strconv.Itoa(packets), "-size", "200", "-duration", "30s", "-to", pair.B.MAC.String())...)
			p := near.must()
			far.Signal(os.Interrupt)
			e := far.must()
			if p.Latency == nil || p.Latency.Count+int64(p.NoEcho) != packets || p.Late > p.NoEcho || p.Latency.Count < packets/2 || p.Latency.Min <= 0 || p.Latency.Max < p.Latency.P50 {
				t.Errorf("%+v, latency %+v", p, p.Latency)
			}
			if e.Received < packets || e.Sent != e.Received || e.Finished != e.Sent {
				t.Errorf("echoed %+v", e)
			}
		})
	}
}

// TestInterrupt: an interrupted program prints a summary for people.
func TestInterrupt(t *testing.T) {
	pair := newPair(t, testenv.PairOptions{})
	p := start(t, &pair.B, "-rx", ring)
	testenv.SendRaw(t, &pair.A, [][]byte{make([]byte, 60), make([]byte, 60)}, testenv.SendOptions{})
	time.Sleep(200 * time.Millisecond)
	p.Signal(os.Interrupt)
	if status := p.End(); status != 0 {
		t.Errorf("status %d\n%s", status, p.Errs.String())
	}
	for _, want := range []string{"received", "2 packets, 120 bytes", "the kernel copies", "processor", "wake-ups", "ledger", "2 offered", "rings of 2048"} {
		if !strings.Contains(p.Out.String(), want) {
			t.Errorf("no %q in\n%s", want, p.Out.String())
		}
	}
}

func TestFailures(t *testing.T) {
	pair := newPair(t, testenv.PairOptions{})
	start(t, &pair.B, "-rx", ring, "-count", "5", "-duration", "200ms").Fails(1, "0 of 5 packets")
	start(t, &pair.B, "-rx", ring, "-zero-copy", "require").Fails(1, "zero copy")
	start(t, &pair.B, "-rx", ring, "-queues", "7").Fails(1, "no queue 7")
	start(t, &pair.B, "-rx", "-ring", "500").Fails(1, "power of two")
	start(t, &pair.B, "-ping", ring, "-count", "1").Fails(1, "no echo")
	down := start(t, &pair.B, "-rx", ring)
	pair.A.SetDown(t)
	down.Fails(1, "down")
	pair.A.SetUp(t)
	gone := start(t, &pair.B, "-rx", ring)
	pair.A.Delete(t)
	gone.Fails(1, "gone")
}

// TestTakeOver: the program refuses to take the interface of the default route from the host.
func TestTakeOver(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 16<<20)
	pair := testenv.NewPair(t, testenv.PairOptions{})
	pair.B.Run(t, "ip", "route", "add", "default", "via", pair.A.IP.String())
	for _, mode := range []string{"-rx", "-echo"} {
		start(t, &pair.B, mode, ring, "-duration", "50ms").Fails(1, "default route")
		for _, args := range [][]string{{"-take-over"}, {"-filter", "udp port 9"}} {
			start(t, &pair.B, append(args, mode, ring, "-duration", "50ms", "-json")...).must()
		}
	}
}

// TestQuerier: the self-test says who asks for members of multicast groups, of both versions of IP.
func TestQuerier(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 48<<20)
	end := testenv.NewSwitch(t, 1, testenv.PairOptions{IPv6: true})[0]
	end.Query(t)
	p := start(t, end)
	if status, out := p.End(), p.Out.String(); status != 0 || !strings.Contains(out, "PASS  querier") || !strings.Contains(out, "by IGMPv") || !strings.Contains(out, "by MLDv") {
		t.Errorf("status %d\n%s%s", status, out, p.Errs.String())
	}
}

func TestSelfTest(t *testing.T) {
	n := len((&tester{}).steps()) + 1 // with close
	pair := newPair(t, testenv.PairOptions{Queues: 2})
	alone := start(t, &pair.A)
	if status := alone.End(); status != 0 || strings.Count(alone.Out.String(), "PASS  ") != n-2 || !strings.Contains(alone.Out.String(), "SKIP  echo") ||
		!strings.Contains(alone.Out.String(), "SKIP  querier") {
		t.Errorf("status %d\n%s%s", status, alone.Out.String(), alone.Errs.String())
	}
	far := start(t, &pair.B, "-echo", ring, "-json", "-filter", ownFilter)
	both := start(t, &pair.A, "-to", pair.B.MAC.String())
	if status := both.End(); status != 0 || strings.Count(both.Out.String(), "PASS  ") != n-1 {
		t.Errorf("status %d\n%s%s", status, both.Out.String(), both.Errs.String())
	}
	far.Signal(os.Interrupt)
	if e := far.must(); e.Sent != batch {
		t.Errorf("echoed %+v", e)
	}
	asJSON := start(t, &pair.A, "-json", "-generic")
	if status := asJSON.End(); status != 0 || strings.Count(asJSON.Out.String(), `"PASS"`)+strings.Count(asJSON.Out.String(), `"SKIP"`) != n {
		t.Errorf("status %d\n%s", status, asJSON.Out.String())
	}
	start(t, &pair.A, "-zero-copy", "require").Fails(1, "FAIL  sockets")
	busy := start(t, &pair.B, "-rx", ring)
	start(t, &pair.B).Fails(1, "FAIL  sockets")
	busy.Signal(os.Interrupt)
	busy.End()
	pair.B.SetDown(t)
	start(t, &pair.A).Fails(1, "down")
}
