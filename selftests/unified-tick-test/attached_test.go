package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

// TestOrderFlow: a program whose orders leave by a flow to the exchange answers each tick, whether ticks come by a flow
// or over a socket of the kernel, and with both protocols. When the exchange ends the connection, in the middle too, the
// program ends.
func TestOrderFlow(t *testing.T) {
	p := pair(t, testenv.PairOptions{Queues: 2})
	testenv.Tool(t, "ethtool")
	p.A.Run(t, "ethtool", "-L", p.A.Ifname, "tx", "1") // all ticks come on queue 0
	unifiedd := testenv.Program(t, "cmd/unifiedd")
	for _, c := range []struct{ protocol, exchange, trader string }{
		{plain, "", "-flow ticks"},
		{ouchProtocol, "", "-flow ticks"},
		{plain, "", "-from :5001"},
		{ouchProtocol, "-end-after 300", "-flow ticks"},
		{plain, "-end-after 300", "-flow ticks"},
	} {
		t.Run(strings.Join([]string{c.protocol, c.exchange, c.trader}, " "), func(t *testing.T) {
			dir := t.TempDir()
			d := daemon.Launch(t, unifiedd, &p.B, dir, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
attach: {socket: %s/attach.sock, programs: [{name: trader, user: "%d", in: 8MiB, out: 2MiB}]}
flows:
  - name: ticks
    from: {interface: %s, queues: [0], ring: 4096, filter: udp dst port 5000}
    stages: [{counter: {offset: 8, width: 8, lines: [{name: a, address: %s, port: 5000}]}}]
    to: {attach: trader, queue: 1024, policy: wait}
  - name: orders
    from: {attach: trader, message: 128}
    to: {order: {connect: "%s:7000", interface: %[3]s, queue: 1, replies: true, retry: 20ms}}
`, dir, os.Getuid(), p.B.Ifname, p.B.IP, p.A.IP))
			d.Begun(t)
			port := 5000
			if strings.Contains(c.trader, "-from") {
				port = 5001
			}
			x := programtest.Start(t, &p.A, "exchange -json %s -protocol %s -wait sleep -to %s:%d -listen :7000 -count 1900 -warm 100 -rate 5000 -burst 4 -after 1s", c.exchange, c.protocol, p.B.IP, port)
			trader := programtest.Start(t, &p.B, "trader -json -wait sleep -protocol %s %s -send orders -socket %s/attach.sock", c.protocol, c.trader, dir)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the trader says %s%s\nthe daemon says %s", &trader.Out, &trader.Errs, d.Log)
				}
			})
			var r result
			var a answered
			x.Must(&r)
			trader.Must(&a)
			s, err := d.Status()
			testenv.Must(t, err)
			o := s.Flows[1].Orders
			t.Logf("%+v; %+v", *r.Latency, *o)
			if c.exchange != "" {
				if r.Answered < 300 || r.Answered > 1500 || a.Orders < r.Answered || o.Lost != 1 {
					t.Errorf("the exchange counts %+v, the trader %+v, the daemon %+v", r, a, o)
				}
				return
			}
			exact(t, &r, 2000, 2000)
			if a.Orders != 2000 || (c.protocol == ouchProtocol) != (a.Replies == 2000) || o.Bytes != r.Bytes || o.Segments < 100 {
				t.Errorf("the exchange counts %+v, the trader %+v, the daemon %+v", r, a, o)
			}
			if times := o.Times; strings.Contains(c.trader, "-flow") {
				if n := times.TickToDecision.Count; n != 2000 || int64(times.NoTick) != times.DecisionToOut.Count-n || times.TickToOut.Count != n {
					t.Errorf("%+v", times)
				}
			}
		})
	}
}
