package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// pair makes a pair where the exchange is at end A, and the trader at B.
func pair(t *testing.T, o testenv.PairOptions) *testenv.Pair {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	return testenv.NewPair(t, o)
}

// exact compares what both sides count.
func exact(t *testing.T, x *result, ticks, answered uint64) {
	t.Helper()
	if x.Ticks != ticks || x.Answered != answered || x.Dropped != ticks-answered || x.Unanswered != 0 {
		t.Errorf("the exchange counts %+v, of %d ticks of which %d are to be answered", x, ticks, answered)
	}
	if x.Latency == nil || x.Latency.Min <= 0 || x.Latency.P50 < x.Latency.Min || x.Latency.Max < x.Latency.P999 || x.Own.Count != x.Latency.Count {
		t.Fatalf("the times are %+v, and by its own clock %+v", x.Latency, x.Own)
	}
}

// TestTraders: each trader, in Go and in C, spinning and sleeping, with plain ticks and MoldUDP64, over IPv4 and IPv6,
// answers each tick once, and the kernel stamps all. What the kernel measures is shorter than what the exchange's own
// clock does.
func TestTraders(t *testing.T) {
	inC := testenv.Compile(t, "../peers/tick-peer/tick-peer.c")
	const count, warm = 600, 200
	for _, c := range []struct{ exchange, trader string }{
		{"-wait sleep", "-wait sleep"},
		{"-wait sleep -mold TODAY", "-wait spin -mold"},
		{"-wait spin", "-wait sleep"},
		{"-wait sleep -protocol ouch -size 200", "-wait sleep -protocol ouch"},
		{"-wait sleep -protocol ouch -mold TODAY", "-wait spin -protocol ouch -mold"},
		{"-wait sleep", "C sleep"},
		{"-wait sleep -mold TODAY", "C spin mold"},
	} {
		for _, six := range []bool{false, true} {
			t.Run(fmt.Sprint(c.exchange, " against ", c.trader, ", IPv6 ", six), func(t *testing.T) {
				p := pair(t, testenv.PairOptions{IPv6: six})
				here, there, any := p.A.IP.String(), p.B.IP.String(), "0.0.0.0"
				if six {
					here, there, any = "["+p.A.IP6.String()+"]", "["+p.B.IP6.String()+"]", "[::]"
				}
				x := programtest.Start(t, &p.A, "exchange -json %s -to %s:5000 -listen %s:7000 -count %d -warm %d", c.exchange, there, here, count, warm)
				var trader *programtest.Run
				if words, ok := strings.CutPrefix(c.trader, "C "); ok {
					trader = programtest.Launch(t, &p.B, inC, append([]string{strings.Trim(any, "[]"), "5000", strings.Trim(here, "[]"), "7000"}, strings.Fields(words)...)...)
				} else {
					trader = programtest.Start(t, &p.B, "trader -json %s -from %s:5000 -to %s:7000", c.trader, any, here)
				}
				var r result
				var a answered
				x.Must(&r)
				trader.Must(&a)
				exact(t, &r, count+warm, count+warm)
				if r.Clock != kernel || r.Unstamped != 0 || r.Latency.P50 >= r.Own.P50 {
					t.Errorf("by the %s's clock (%d without): %+v, by its own %+v", r.Clock, r.Unstamped, r.Latency, r.Own)
				}
				if a.Ticks != count+warm || a.Orders != count+warm || a.Repeats != 0 || a.Refused != 0 || strings.Contains(c.trader, "ouch") != (a.Replies == count+warm) {
					t.Errorf("the trader counts %+v", a)
				}
				t.Logf("kernel %+v, own %+v", *r.Latency, *r.Own)
			})
		}
	}
}

// TestLoss: ticks that both lines leave out are not answered, all others are, and the counts are exact. The same seed
// leaves out the same ticks. The exchange stays on a CPU, since packets of two may overtake each other.
func TestLoss(t *testing.T) {
	p := pair(t, testenv.PairOptions{})
	dropped := uint64(0)
	for round, protocol := range []string{plain, ouchProtocol} {
		x := programtest.Start(t, &p.A, "exchange -json -wait sleep -cpu 0 -protocol %s -mold DAY -to %s:5000,%[2]s:5001 -listen :7000 -count 3000 -warm 0 -loss 20 -rate 20000 -burst 8", protocol, p.B.IP)
		trader := programtest.Start(t, &p.B, "trader -json -wait sleep -protocol %s -mold -from :5000,:5001 -to %s:7000", protocol, p.A.IP)
		var r result
		var a answered
		x.Must(&r)
		trader.Must(&a)
		exact(t, &r, 3000, 3000-r.Dropped)
		sent := r.Lines[0].Packets + r.Lines[1].Packets - 2 // without the ends of the session
		if r.Dropped < 60 || r.Dropped > 180 || sent != 6000-r.Lines[0].Dropped-r.Lines[1].Dropped || a.Ticks != sent || a.Orders != r.Answered {
			t.Errorf("the exchange counts %+v, the trader %+v", r, a)
		}
		if round > 0 && r.Dropped != dropped {
			t.Errorf("%d ticks were left out, and %d with the same seed before", r.Dropped, dropped)
		}
		dropped = r.Dropped
	}
}

// TestHardExchange: an exchange with a small window that stops reading now and then gets each byte, and one that ends the
// connection in the middle gets what it asked for.
func TestHardExchange(t *testing.T) {
	inC := testenv.Compile(t, "../peers/tick-peer/tick-peer.c")
	p := pair(t, testenv.PairOptions{})
	for _, c := range []bool{false, true} {
		x := programtest.Start(t, &p.A, "exchange -json -wait sleep -window 2048 -stall-every 500 -stall 60ms -to %s:5000 -listen :7000 -count 1900 -warm 100 -rate 20000 -burst 10", p.B.IP)
		var trader *programtest.Run
		if c {
			trader = programtest.Launch(t, &p.B, inC, "0.0.0.0", "5000", p.A.IP.String(), "7000", "sleep")
		} else {
			trader = programtest.Start(t, &p.B, "trader -json -wait sleep -from :5000 -to %s:7000", p.A.IP)
		}
		var r result
		var a answered
		x.Must(&r)
		trader.Must(&a)
		exact(t, &r, 2000, 2000)
		if a.Orders != 2000 || r.Seconds < 0.18 || r.Own.Max < 40e6 {
			t.Errorf("the exchange counts %+v, own clock %+v, the trader %+v", r, r.Own, a)
		}
	}
	for _, protocol := range []string{plain, ouchProtocol} {
		x := programtest.Start(t, &p.A, "exchange -json -wait sleep -protocol %s -end-after 300 -to %s:5000 -listen :7000 -count 1000 -warm 10 -rate 20000", protocol, p.B.IP)
		trader := programtest.Start(t, &p.B, "trader -json -wait sleep -protocol %s -from :5000 -to %s:7000", protocol, p.A.IP)
		var r result
		var a answered
		x.Must(&r)
		trader.Must(&a)
		if r.Answered < 300 || r.Answered > 900 || !r.Early || a.Orders < r.Answered {
			t.Errorf("the exchange counts %+v, the trader %+v", r, a)
		}
	}
}

// TestOwnClock: with -stamps own the kernel stamps nothing, and the result is for people.
func TestOwnClock(t *testing.T) {
	p := pair(t, testenv.PairOptions{})
	x := programtest.Start(t, &p.A, "exchange -wait sleep -stamps own -to %s:5000 -listen :7000 -count 200 -warm 10", p.B.IP)
	trader := programtest.Start(t, &p.B, "trader -wait sleep -from :5000 -to %s:7000", p.A.IP)
	for _, one := range []*programtest.Run{x, trader} {
		one.Must()
	}
	for _, says := range []string{"210 in", "210 (plain), 6720 bytes", "median", "99.9 %", "by the program's clock"} {
		if !strings.Contains(x.Out.String(), says) {
			t.Errorf("no %q in\n%s", says, &x.Out)
		}
	}
	if strings.Contains(x.Out.String(), "kernel's") || !strings.Contains(trader.Out.String(), "210 orders") {
		t.Errorf("%s%s", &x.Out, &trader.Out)
	}
}

// TestMulticast: ticks go to a group, over the interface that is named.
func TestMulticast(t *testing.T) {
	p := pair(t, testenv.PairOptions{})
	x := programtest.Start(t, &p.A, "exchange -json -wait sleep -to 239.1.2.3:5000 -interface %s -listen :7000 -count 200 -warm 10", p.A.Ifname)
	trader := programtest.Start(t, &p.B, "trader -json -wait sleep -from 239.1.2.3:5000 -interface %s -to %s:7000", p.B.Ifname, p.A.IP)
	var r result
	var a answered
	x.Must(&r)
	trader.Must(&a)
	exact(t, &r, 210, 210)
	programtest.Start(t, &p.A, "exchange -to 239.1.2.3:5000 -interface nowhere -listen :7000").Fails(1, "nowhere")
}

// TestAttached: a daemon puts the ticks of two lines in order, which each leave out some, and a program that is attached
// to it answers each that a line had, once and in order. So it is with both stages for feeds.
func TestAttached(t *testing.T) {
	p := pair(t, testenv.PairOptions{})
	unifiedd := testenv.Program(t, "cmd/unifiedd")
	for _, c := range []struct{ stage, exchange string }{
		{"moldudp64: {", "-mold DAY"}, {"counter: {offset: 8, width: 8, ", ""},
	} {
		t.Run(strings.Split(c.stage, ":")[0], func(t *testing.T) {
			dir := t.TempDir()
			d := daemon.Launch(t, unifiedd, &p.B, dir, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
attach: {socket: %s/attach.sock, programs: [{name: trader, user: "%d", in: 8MiB}]}
flows:
  - name: ticks
    from: {interface: %s, ring: 4096, filter: udp dst portrange 5000-5001}
    stages:
      - %slines: [{name: a, address: %s, port: 5000}, {name: b, address: %[5]s, port: 5001}], gap: 2ms}
    to: {attach: trader, queue: 1024, policy: wait}
`, dir, os.Getuid(), p.B.Ifname, c.stage, p.B.IP))
			d.Until(t, "the flow to run", func(s *status.Daemon) bool { return len(s.Flows) == 1 && s.Flows[0].State == status.Running })
			x := programtest.Start(t, &p.A, "exchange -json %s -wait sleep -to %s:5000,%[2]s:5001 -listen :7000 -count 2000 -warm 100 -loss 10 -rate 5000 -burst 4", c.exchange, p.B.IP)
			trader := programtest.Start(t, &p.B, "trader -json -wait sleep -flow ticks -socket %s/attach.sock -to %s:7000", dir, p.A.IP)
			var r result
			var a answered
			x.Must(&r)
			trader.Must(&a)
			exact(t, &r, 2100, 2100-r.Dropped)
			if r.Dropped == 0 || a.Ticks != r.Answered || a.Repeats != 0 || a.Refused != 0 {
				t.Errorf("the exchange counts %+v, the trader %+v", r, a)
			}
			s, err := d.Status()
			testenv.Must(t, err)
			if f := s.Flows[0].Feed; f.Messages != r.Answered || f.Lost > r.Dropped || f.Lost+1 < r.Dropped || f.Sessions != 1 { // nothing shows the loss of the last one
				t.Errorf("the feed counts %+v, the exchange %+v", f, r)
			}
			t.Logf("%+v", *r.Latency)
		})
	}
}

// TestEcho: an AF_XDP socket that sends ticks back is measured in the same way, without TCP.
func TestEcho(t *testing.T) {
	p := pair(t, testenv.PairOptions{})
	testenv.HugePages(t, 16<<20)
	echo := programtest.Launch(t, &p.B, testenv.Compile(t, "../peers/tick-peer/tick-echo.c", "-lxdp", "-lbpf"), p.B.Ifname, "5000")
	x := programtest.Start(t, &p.A, "exchange -json -echo -wait sleep -to %s:5000 -count 600 -warm 100", p.B.IP)
	var r result
	x.Must(&r)
	exact(t, &r, 700, 700)
	if r.Clock != kernel || r.Unstamped != 0 || r.Bytes != 700*tickLen {
		t.Errorf("it counts %+v", r)
	}
	echo.Signal(os.Interrupt)
	var sent struct{ Orders uint64 }
	echo.Must(&sent)
	if sent.Orders < 701 { // with those that asked whether it is there
		t.Errorf("the echo has sent %d", sent.Orders)
	}
	programtest.Start(t, &p.A, "exchange -echo -to %s:5000 -timeout 100ms", p.B.IP).Fails(1, "nothing comes back")
}

// TestFailures: a trader that does not come, that answers wrongly, or not at all, makes the exchange fail.
func TestFailures(t *testing.T) {
	p := pair(t, testenv.PairOptions{})
	programtest.Start(t, &p.A, "exchange -to %s:5000 -listen :7000 -timeout 100ms", p.B.IP).Fails(1, "no trader")
	programtest.Start(t, &p.B, "trader -from :5000 -to %s:7000 -timeout 100ms", p.A.IP).Fails(1, "connect to the exchange")

	// A trader with another idea of the protocol.
	x := programtest.Start(t, &p.A, "exchange -to %s:5000 -listen :7000 -timeout 3s", p.B.IP)
	programtest.Start(t, &p.B, "trader -protocol ouch -from :5000 -to %s:7000 -timeout 3s", p.A.IP)
	x.Fails(1, "byte 0 of the stream of orders")

	// A trader at another port: the exchange finds nobody.
	x = programtest.Start(t, &p.A, "exchange -wait sleep -to %s:5000 -listen :7000 -count 3 -warm 0", p.B.IP)
	programtest.Start(t, &p.B, "trader -from :5001 -to %s:7000", p.A.IP)
	x.Fails(1, "nobody receives there")

	// A trader that hears nothing: the ticks go somewhere else.
	x = programtest.Start(t, &p.A, "exchange -wait sleep -to 239.1.2.3:5000 -interface %s -listen :7000 -count 2 -warm 0", p.A.Ifname)
	programtest.Start(t, &p.B, "trader -from :5000 -to %s:7000", p.A.IP)
	x.Fails(1, "2 of 2 ticks were not answered")
}
