package trading

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/market"
	"github.com/unifiedd/unifiedd/docs/examples/trading/soupbin"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/netnsdir"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// examples is where the example is.
const examples = "docs/examples/trading"

// bed is the two hosts. C stands for the second interface of host A, over which the risk monitor reads books, and for
// the exchange.
type bed struct {
	*testing.T
	a, b, c        *testenv.End
	dirA, dirB     string
	asked, stream  string // files: the orders of the strategy, and what the gateway got
	daemonA        *daemon.Daemon
	daemonB        *daemon.Daemon
	updates, pace  uint64
	order, monitor *daemon.Client
	strategy       *daemon.Client
	handler        *daemon.Client
	gateway        *daemon.Client
}

// TestTrading: the programs of the example exchange what they are to. Each update of the exchange becomes a tick, each
// tick of a best price an order, and each order a durable record and a message to the exchange: the bytes that the
// exchange gets are those of the orders that the strategy has asked for. The risk monitor sees or counts everything, and
// the books that it READs at the end are those of the handler. UNIFIEDD_UPDATES updates come, UNIFIEDD_RATE a second.
func TestTrading(t *testing.T) {
	testenv.Long(t, "it builds six programs, and selftests/attach tests what they use")
	testenv.Root(t)
	b := &bed{T: t, dirA: t.TempDir(), dirB: t.TempDir(), updates: number(t, "UNIFIEDD_UPDATES", 20_000), pace: number(t, "UNIFIEDD_RATE", 5000)}
	hosts := testenv.NewSwitch(t, 3, testenv.PairOptions{})
	b.a, b.b, b.c = hosts[0], hosts[1], hosts[2]
	b.link(b.b, "feed", feedAddress, "exchange", "10.78.0.1")
	b.link(b.a, "entry", "10.79.0.2", "gateway", gatewayAddress)
	b.asked, b.stream = filepath.Join(b.dirB, "asked"), filepath.Join(b.dirA, "stream")
	unifiedd := testenv.Program(t, "cmd/unifiedd")
	b.daemonA = daemon.Launch(t, unifiedd, b.a, b.dirA, b.configuration("a.yaml", b.a, b.dirA))
	b.daemonB = daemon.Launch(t, unifiedd, b.b, b.dirB, b.configuration("b.yaml", b.b, b.dirB))
	b.gateway = daemon.StartClient(t, testenv.Program(t, examples+"/gateway"), b.c, "-listen", gatewayAddress+":7000", "-stream", b.stream)
	b.daemonA.Until(t, "host A's flows to run", running)
	b.daemonB.Until(t, "host B's flows to run", running)

	b.handler = b.start(b.b, "handler", b.dirB)
	b.strategy = b.start(b.b, "strategy", b.dirB, "-record", b.asked)
	b.order = b.start(b.a, "orders", b.dirA)
	b.monitor = b.start(b.c, "risk", b.dirA, "-device", "roce:"+b.c.Ifname, "-books", b.b.IP.String()+":7473")
	b.daemonB.Until(t, "host B's programs to follow", following)
	b.daemonA.Until(t, "host A's programs to follow", following)

	exchange := daemon.StartClient(t, testenv.Program(t, examples+"/exchange"), b.c,
		"-to", feedAddress+":5000", "-count", fmt.Sprint(b.updates), "-rate", fmt.Sprint(b.pace))
	exchange.Await(t, 5*time.Second+time.Duration(b.updates/b.pace)*2*time.Second)
	b.finish()
	handler, strategy, monitor := b.report(b.handler), b.report(b.strategy), b.report(b.monitor)
	orders := b.report(b.order)
	b.gateway.Await(t, 20*time.Second) // the order entry has logged out
	b.check(handler, strategy, orders, monitor, b.read(b.gateway))
	b.compare()
}

// Addresses of host B for the exchange's packets, and of the exchange for orders.
const (
	feedAddress    = "10.78.0.2"
	gatewayAddress = "10.79.0.1"
)

// link makes a link from a host to the exchange, which the host gets beside the interface for RDMA.
func (b *bed) link(host *testenv.End, name, address, peer, peerAddress string) {
	b.Helper()
	host.Run(b.T, "ip", "link", "add", name, "type", "veth", "peer", "name", peer)
	host.Run(b.T, "ip", "link", "set", peer, "netns", netnsdir.Path(b.c.Name))
	host.Run(b.T, "ip", "address", "add", address+"/24", "dev", name)
	b.c.Run(b.T, "ip", "address", "add", peerAddress+"/24", "dev", peer)
	host.Run(b.T, "ip", "link", "set", name, "up")
	b.c.Run(b.T, "ip", "link", "set", peer, "up")
}

// number returns a number of the environment.
func number(t *testing.T, name string, other uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return other
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		t.Fatalf("%s is %q, and not a number", name, s)
	}
	return n
}

// configuration returns a file of the example for these hosts.
func (b *bed) configuration(name string, at *testenv.End, dir string) string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join("../..", examples, name))
	testenv.Must(b, err)
	return strings.NewReplacer(
		"control: {socket: /run/unifiedd/control.sock}\n", "",
		"region: {size: 64MiB}", "region: {size: 64MiB, pages: ordinary}",
		"interface: eth0\n", "interface: entry\n", "interface: eth0,", "interface: feed,", "eth1", at.Ifname, "10.0.1.9", gatewayAddress, "10.0.0.1", b.a.IP.String(), "10.0.0.2", b.b.IP.String(), "/run/unifiedd", dir, "/var/lib/unifiedd", dir,
	).Replace(string(text))
}

// start builds and starts a program of the example.
func (b *bed) start(at *testenv.End, name, dir string, more ...string) *daemon.Client {
	b.Helper()
	return daemon.StartClient(b.T, testenv.Program(b.T, examples+"/"+name), at, append([]string{"-socket", filepath.Join(dir, "attach.sock")}, more...)...)
}

func running(s *status.Daemon) bool {
	for i := range s.Flows {
		if f := &s.Flows[i]; f.State != "running" && f.State != "waiting" {
			return false
		}
	}
	return len(s.Flows) > 0
}

// following reports whether all programs and peers follow their channels, and have their flows open.
func following(s *status.Daemon) bool {
	for _, c := range s.Programs.Channels {
		if !c.Writing {
			return false
		}
		for _, r := range c.Readers {
			if !r.Reading {
				return false
			}
		}
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		if f.Gives != nil && !f.Gives.Open || f.Submits != nil && !f.Submits.Open {
			return false
		}
	}
	return true
}

// flow returns the status of a flow.
func flow(s *status.Daemon, name string) *status.Flow {
	for i := range s.Flows {
		if s.Flows[i].Name == name {
			return &s.Flows[i]
		}
	}
	return &status.Flow{}
}

// finish waits until everything has reached its end.
func (b *bed) finish() {
	b.Helper()
	var orders uint64
	b.daemonB.Until(b.T, "the handler to pass on all updates", func(s *status.Daemon) bool {
		orders = s.Programs.Channels[1].Last
		ticks := &s.Programs.Channels[0]
		return ticks.Last == b.updates && ticks.Readers[0].Lag == 0 && flow(s, "books").Packets == b.updates
	})
	b.daemonB.Until(b.T, "the strategy to have written its orders", func(s *status.Daemon) bool {
		before := orders
		orders = s.Programs.Channels[1].Last
		return before == orders
	})
	b.daemonA.Until(b.T, "all orders to be durable, and read", func(s *status.Daemon) bool {
		for _, c := range s.Programs.Channels {
			for _, r := range c.Readers {
				if r.Lag > 0 {
					return false
				}
			}
		}
		return flow(s, "orders").Durable.Packets == orders
	})
}

// report ends a program, and returns what it says.
func (b *bed) report(c *daemon.Client) (r market.Report) {
	b.Helper()
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		b.Fatalf("%v has ended: %v\n%s", c.Args, err, &c.Out)
	}
	c.Await(b.T, 20*time.Second)
	return b.read(c)
}

// read returns what a program that has ended said.
func (b *bed) read(c *daemon.Client) (r market.Report) {
	b.Helper()
	out := c.Out.String()
	if i := strings.Index(out, `{"program"`); i >= 0 {
		out = out[i:]
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		b.Fatalf("%v: %v\n%s", c.Args, err, &c.Out)
	}
	return r
}

// check compares what the programs say, and prints the latencies.
func (b *bed) check(handler, strategy, orders, risk, gateway market.Report) {
	b.Helper()
	for _, one := range []struct {
		what      string
		got, want uint64
	}{
		{"updates that the handler got", handler.Counts["updates"], b.updates},
		{"updates that it missed", handler.Counts["gaps"], 0},
		{"ticks that the strategy lost", strategy.Counts["lost"], 0},
		{"orders that arrived", orders.Counts["orders"], strategy.Counts["orders"]},
		{"orders that were lost", orders.Counts["lost"], 0},
		{"orders that are durable", orders.Counts["durable"], strategy.Counts["orders"]},
		{"orders that the exchange got", gateway.Counts["orders"], strategy.Counts["orders"]},
		{"orders that it has accepted", orders.Counts["accepted"], strategy.Counts["orders"]},
		{"ticks that the risk monitor saw or lost", risk.Counts["ticks"] + risk.Counts["ticks_lost"], b.updates},
		{"orders that the risk monitor saw or lost", risk.Counts["orders"] + risk.Counts["orders_lost"], strategy.Counts["orders"]},
		{"checksum of the books", risk.Counts["books_sum"], handler.Counts["books_sum"]},
	} {
		if one.got != one.want {
			b.Errorf("%s: %d, want %d", one.what, one.got, one.want)
		}
	}
	if strategy.Counts["orders"] == 0 || risk.Counts["books_read"] == 0 {
		b.Errorf("%d orders, and %d books were read", strategy.Counts["orders"], risk.Counts["books_read"])
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOP\tCOUNT\tMEDIAN\t99 %\tMOST")
	for _, r := range []market.Report{handler, strategy, risk, orders} {
		for _, h := range r.Hops {
			fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\n", h.Hop, h.Count, time.Duration(h.P50), time.Duration(h.P99), time.Duration(h.Most))
		}
	}
	_ = w.Flush() // a builder takes everything
	b.Logf("%d updates, %d a second\n%s", b.updates, b.pace, &table)
	b.Logf("the risk monitor read %d books, %d of them behind the tick; %d reads met a write", risk.Counts["books_read"], risk.Counts["books_behind"], risk.Counts["conflicts"])
}

// compare compares what the exchange got with the orders that the strategy asked for, byte for byte. Heartbeats may be
// anywhere between them.
func (b *bed) compare() {
	b.Helper()
	asked, err := os.ReadFile(b.asked)
	testenv.Must(b, err)
	login := soupbin.Login{User: "desk", Password: "orders", Sequence: 1}
	want, err := login.Append(nil)
	testenv.Must(b, err)
	for ; len(asked) > 0; asked = asked[market.OrderLen:] {
		var o market.Order
		testenv.Must(b, o.Parse(asked))
		m, err := o.Enter()
		testenv.Must(b, err)
		want = soupbin.Append(want, soupbin.UnsequencedData, m.Append(nil)...)
	}
	want = soupbin.Append(want, soupbin.LogoutRequest)
	stream, err := os.ReadFile(b.stream)
	testenv.Must(b, err)
	var got []byte
	packets, size := uint64(0), len(stream)
	for ; len(stream) > 0; packets++ {
		p, n, err := soupbin.Next(stream)
		if err != nil || n == 0 {
			b.Fatalf("the stream has no packet at byte %d of %d: %v", size-len(stream), size, err)
		}
		if p.Type != soupbin.ClientHeartbeat {
			got = append(got, stream[:n]...)
		}
		stream = stream[n:]
	}
	if !bytes.Equal(got, want) {
		at := 0
		for at < len(got) && at < len(want) && got[at] == want[at] {
			at++
		}
		b.Errorf("the exchange got %d bytes without heartbeats, of %d, and they differ at byte %d", len(got), len(want), at)
	}
	s, err := b.daemonA.Status()
	testenv.Must(b, err)
	o := flow(&s, "exchange").Orders
	left := o.Segments
	for _, n := range o.Kernel {
		left += n
	}
	if left != packets || o.Bytes != uint64(size) || o.Segments < packets/4 {
		b.Errorf("the daemon counts %+v, and the exchange got %d packets", o, packets)
	}
	b.Logf("the exchange got %d packets, %d in segments of the daemon, %v from the kernel; %d acknowledgements came early", packets, o.Segments, o.Kernel, o.Early)
}
