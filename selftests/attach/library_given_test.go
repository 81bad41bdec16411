package attach

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// givenSetting has flows that send orders on connections of programs.
const givenSetting = `
region: {size: 32MiB, pages: ordinary}
workers: [{name: main}]
attach: {socket: SOCKET, programs: [{name: writer, user: "USER", out: 2MiB}, {name: session, user: "USER"}]}
flows:
  - {name: orders, from: {attach: writer, message: 1KiB}, to: {order: {given: session, interface: IFACE}}}
  - {name: own, from: {attach: writer, message: 1KiB}, to: {order: {given: writer, interface: IFACE, queue: 1}}}
`

// givenCases are cases of connections that a program gives. The exchange sends everything back.
var givenCases = []libraryCase{
	{name: "a connection for another program's orders", setting: givenSetting, exchange: true, steps: `attach SOCKET session 7 = attached;
		connect EXCHANGE = connected; say login = said; hear 5 = heard 5 537; give nothing = error refused no_such_flow;
		give own = error refused no_such_flow; @attach SOCKET writer 7 = attached; @send orders 0 = error refused busy;
		give orders = given; give orders = error refused busy; check = in use; @send orders 0 = opened 1;
		@append 1000 20 = done 1 1000 1000; hear 20000 = heard 20000 2543040; check = in use; takeback = back; say logout = said;
		hear 6 = heard 6 666; give orders = given; detach = detached; @detach = detached`},
	{name: "a connection for own orders", setting: givenSetting, exchange: true, steps: `attach SOCKET writer 7 = attached; send own 0 = error refused busy;
		connect EXCHANGE = connected; give own = given; send own 0 = opened 1; append 300 100 = done 1 300 300; hear 30000 = heard 30000 *;
		close = closed; send own 0 = opened 301; append 1 1024 = done 301 301 301; hear 1024 = heard 1024 *; takeback = back; say bye = said; hear 3 = heard 3 320`},
	{name: "daemon restarted while it has a connection", setting: givenSetting, exchange: true, steps: `attach SOCKET session 7 = attached;
		connect EXCHANGE = connected; give orders = given; !kill; check = error gone none; takeback = error gone none; give orders = error gone none;
		!run; detach = detached; attach SOCKET session 7 = attached; connect EXCHANGE = connected; give orders = given; check = in use;
		@attach SOCKET writer 7 = attached; @send orders 0 = opened 1; @append 100 20 = done 1 100 100; hear 2000 = heard 2000 *; @detach = detached`},
	{name: "orders without a receipt", setting: givenSetting, exchange: true, steps: `attach SOCKET session 7 = attached;
		connect EXCHANGE = connected; give orders = given; @attach SOCKET writer 7 = attached; @send orders 0 = opened 1;
		@append 100 20 = done 1 100 100; hear 2000 = heard 2000 *; !kill; @order 30 20 &; check = error gone none; !run;
		detach = detached; attach SOCKET session 7 = attached; connect EXCHANGE = connected; give orders = given; @ = orders 0 30;
		@order 1 20 = orders 1 0; hear 20 = heard 20 2810; @append 9 20 = done 132 140 10; @detach = detached`},
	{name: "flow restarted while it has a connection", setting: givenSetting, exchange: true, steps: `attach SOCKET session 7 = attached;
		connect EXCHANGE = connected; give orders = given; !stop orders; check = error closed closing; takeback = back; say ok = said; hear 2 = heard 2 218;
		give orders = error refused no_such_flow; !start orders; give orders = given; check = in use`},
}

// place is where a case runs: the namespace of the test, or one in which there is an exchange at the other end of an
// interface.
type place struct {
	daemon.Place
	end *testenv.End // nil: that of the test
}

// newPlace makes the place of a case.
func newPlace(t *testing.T, exchange bool) (p place, iface, address string) {
	t.Helper()
	if !exchange {
		return place{Place: daemon.Here{}}, "", ""
	}
	pair := testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	var l *net.TCPListener
	pair.B.Do(t, func() {
		var err error
		if l, err = net.ListenTCP("tcp", &net.TCPAddr{IP: pair.B.IP.AsSlice()}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // a program that ends resets the connection
			}()
		}
	}()
	at := l.Addr().(*net.TCPAddr)
	return place{pair.A.Namespace, &pair.A}, pair.A.Ifname, fmt.Sprintf("%v %d", at.IP, at.Port)
}

// runGiven runs a command for a connection.
func (g *goLibrary) runGiven(what string, words []string, n []int) (answer string, err error) {
	switch what {
	case "connect":
		g.at.end.Do(g.t, func() {
			g.conn, err = net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.ParseIP(words[0]), Port: n[1]})
		})
		return "connected", err
	case "say":
		_, err = g.conn.Write([]byte(words[0]))
		return "said", err
	case "hear":
		return g.hear(n[0])
	case "give":
		given, err := g.client.Give(words[0], g.conn)
		if err == nil {
			g.given = given
		}
		return "given", err
	case "check":
		why := g.given.Err()
		if why == nil {
			return "in use", nil
		}
		if refused, is := errors.AsType[*attached.RefusedError](why); is {
			return "error closed " + refused.Reason, nil
		}
		return "", why
	}
	err = g.given.Close()
	g.given = nil
	return "back", err
}

// hear reads n bytes that the exchange sends.
func (g *goLibrary) hear(n int) (string, error) {
	b, sum := make([]byte, n), uint32(0)
	var from io.Reader = g.conn
	if g.given != nil {
		from = g.given
	}
	if err := g.conn.SetReadDeadline(time.Now().Add(testenv.Within(20 * time.Second))); err != nil {
		return "", err
	}
	k, err := io.ReadFull(from, b)
	for _, c := range b[:k] {
		sum += uint32(c)
	}
	return fmt.Sprintf("heard %d %d", k, sum), err
}
