package flows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	library "github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// exchange is at end A. It sends back what it gets.
type exchange struct {
	listener *net.TCPListener
	conns    chan *net.TCPConn
	ends     chan error   // how connections ended
	bytes    atomic.Int64 // of all connections, that were sent back
}

func (l *lab) exchange(t *testing.T) *exchange {
	t.Helper()
	x := &exchange{conns: make(chan *net.TCPConn, 16), ends: make(chan error, 16)}
	l.A.Do(t, func() {
		var err error
		x.listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: l.A.IP.AsSlice(), Port: 4001})
		testenv.Must(t, err)
	})
	t.Cleanup(func() { x.listener.Close() })
	go func() {
		for {
			c, err := x.listener.AcceptTCP()
			if err != nil {
				return
			}
			x.conns <- c
			go x.echo(c)
		}
	}()
	return x
}

func (x *exchange) echo(c *net.TCPConn) {
	defer c.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if n > 0 {
			_, failed := c.Write(b[:n])
			err = errors.Join(err, failed)
		}
		x.bytes.Add(int64(n))
		if errors.Is(err, io.EOF) {
			err = nil
			n = 0
		}
		if err != nil || n == 0 {
			select {
			case x.ends <- err:
			default: // nobody looks
			}
			return
		}
	}
}

// trader is a program that sends orders.
type trader struct {
	t       *testing.T
	client  *library.Client
	orders  *library.Sender
	replies *library.Receiver
	said    []byte // by the exchange
}

func (l *lab) trader(t *testing.T) *trader {
	t.Helper()
	k, err := library.Attach(library.Config{Socket: filepath.Join(l.dir, "attach.sock"), Name: "trader"})
	testenv.Must(t, err)
	t.Cleanup(func() { k.Close() })
	r := &trader{t: t, client: k}
	r.orders, err = k.Send("orders", 0)
	testenv.Must(t, err)
	r.replies, err = k.Receive("orders", 0)
	testenv.Must(t, err)
	return r
}

// send sends an order, and returns its receipt.
func (r *trader) send(text string) library.Receipt {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), testenv.Within(30*time.Second))
	defer cancel()
	f, err := r.orders.Claim()
	if err == nil {
		_, err = r.orders.CommitAnswer(f, copy(f.Data, text), uint64(time.Now().Add(-time.Millisecond).UnixNano()))
	}
	var got [1]library.Receipt
	for n := 0; n == 0 && err == nil; {
		if err = r.orders.Wait(ctx, time.Second); err == nil {
			n, err = r.orders.Poll(got[:])
		}
	}
	if err != nil {
		r.t.Fatalf("send %q: %v", text, err)
	}
	return got[0]
}

// hears waits until the exchange has said a text since the last call.
func (r *trader) hears(want string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), testenv.Within(30*time.Second))
	defer cancel()
	for len(r.said) < len(want) {
		var m [8]library.Message
		n, err := r.replies.Poll(m[:])
		for i := range m[:n] {
			r.said = append(r.said, m[i].Data...)
		}
		r.replies.Release(m[:n])
		if n == 0 { // also if the port has closed, which opens again then
			err = r.replies.Wait(ctx, time.Second)
		}
		if err != nil {
			r.t.Fatalf("the exchange has said %q: %v", r.said, err)
		}
	}
	if string(r.said) != want {
		r.t.Fatalf("the exchange has said %q, want %q", r.said, want)
	}
	r.said = nil
}

// orders returns a configuration of a flow from the program trader at end B to the exchange.
func (l *lab) orders(limits string) string {
	return fmt.Sprintf(`
region: {size: 32MiB}
workers: [{name: main, wait: spin}]
attach: {socket: %s/attach.sock, programs: [{name: trader, user: "%d", in: 2MiB, out: 2MiB}]}
flows:
  - name: orders
    from: {attach: trader, message: 256}
    to: {order: {connect: "%s:4001", interface: %s, replies: true, retry: 50ms, times: %[1]s/times.csv, limits: {%[5]s}}}
`, l.dir, os.Getuid(), l.A.IP, l.B.Ifname, limits)
}

// TestOrders: orders of a program reach the exchange, and what it sends reaches the program. Limits refuse orders. A
// connection that ends closes the ports, and orders go on over the next one: without one that was sent before the program
// knew.
func TestOrders(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	x := l.exchange(t)
	f := l.start(t, l.orders("size: 42, length: {add: 2}, rate: 100000, burst: 100000, price: {offset: 6, min: 100, max: 1635018144, at: 2, is: buy}"), Options{}).Flows()[0]
	framed := func(text string) string { return "\x00" + string(rune(len(text))) + text }
	r := l.trader(t)
	for i := range 300 {
		text := framed(fmt.Sprintf("buy %08d", i)) // of which the price is in the digits
		if got := r.send(text); got.Err != nil || got.Position != uint64(i+1) {
			t.Fatalf("order %d: %+v", i, got)
		}
		r.hears(text)
	}
	for _, c := range []struct {
		text string
		err  error
	}{
		{framed("buy ~~~~"), wire.OverLimit}, {framed("buy 12"), wire.OverLimit}, {framed("sell ~~~~"), nil}, {framed(fmt.Sprintf("%41s", "long")), wire.OverLimit},
		{framed("buy ~~~~")[:4], wire.OverLimit}, {framed("buy ~~~~")[4:], wire.OverLimit}, {framed("buy 1234") + framed("buy ~~~~"), wire.OverLimit},
	} {
		if got := r.send(c.text); !errors.Is(got.Err, c.err) || (got.Err == nil) != (c.err == nil) {
			t.Errorf("%q: %+v, want %v", c.text, got, c.err)
		}
	}
	r.hears(framed("sell ~~~~"))
	s := f.Status()
	if d := s.Dropped; d["price_outside"] != 1 || d["price_missing"] != 1 || d["over_size"] != 1 || d["not_one_order"] != 3 || d["over_rate"] != 0 {
		t.Errorf("refused: %v", d)
	}
	left := s.Orders.Segments
	for _, n := range s.Orders.Kernel {
		left += n
	}
	if o := s.Orders; o.Segments < 50 || left != 301 || !o.Connected || o.Received == 0 {
		t.Errorf("%+v", o)
	}
	await(t, f, "the times of all orders", func(s status.Flow) bool {
		return s.Orders.Times.TickToOut != nil && s.Orders.Times.TickToOut.Count == 301
	})
	if x := f.Status().Orders.Times; x.NoTick != 0 || x.NoStamp != 0 || x.TickToDecision.Count != 301 || x.TickToDecision.Min < 1e6 || x.DecisionToOut.Count != 301 || x.File.Orders > 301 {
		t.Errorf("%+v, %+v", x, x.File)
	}
	c := <-x.conns
	c.SetLinger(0)
	c.Close()
	await(t, f, "another connection", func(s status.Flow) bool { return s.Orders.Connections == 2 && s.Orders.Connected })
	if got := r.send(framed("late order")); !errors.Is(got.Err, wire.NotKnown) {
		t.Errorf("over the first connection: %+v", got)
	}
	if got := r.send(framed("login")); got.Err != nil {
		t.Errorf("over the second connection: %+v", got)
	}
	r.hears(framed("login"))
	if o := f.Status().Orders; o.Lost != 1 {
		t.Errorf("%+v", o)
	}
	await(t, f, "lines of all orders", func(s status.Flow) bool { return s.Orders.Times.File.Orders == 302 })
	text, err := os.ReadFile(filepath.Join(l.dir, "times.csv"))
	if err != nil || strings.Count(string(text), "\n") != 303 {
		t.Errorf("%d lines: %v", strings.Count(string(text), "\n"), err)
	}
}

// TestOrdersLastReplies: an exchange that closes the connection sees it closed in turn, and not reset, though the program
// has not taken all of what the exchange sent before. The program gets all of it.
func TestOrdersLastReplies(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	x := l.exchange(t)
	f := l.start(t, l.orders(""), Options{}).Flows()[0]
	r := l.trader(t)
	const orders = 150 // more than there are pieces
	for i := range orders {
		if got := r.send(fmt.Sprintf("order %04d", i)); got.Err != nil {
			t.Fatal(got)
		}
		for x.bytes.Load() < int64(10*(i+1)) { // a piece for each
			time.Sleep(100 * time.Microsecond)
		}
	}
	c := <-x.conns
	testenv.Must(t, c.CloseWrite())
	time.Sleep(100 * time.Millisecond) // the daemon has seen the end
	if o := f.Status().Orders; !o.Connected {
		t.Errorf("the connection was closed at once: %+v", o)
	}
	var want strings.Builder
	for i := range orders {
		fmt.Fprintf(&want, "order %04d", i)
	}
	r.hears(want.String())
	await(t, f, "the end of the connection", func(s status.Flow) bool { return s.Orders.Lost == 1 })
	select {
	case err := <-x.ends:
		if err != nil {
			t.Errorf("the exchange sees the connection end with %v", err)
		}
	case <-time.After(testenv.Within(10 * time.Second)):
		t.Error("the exchange does not see the end")
	}
}

// TestOrdersLingers: a program that does not take what the exchange sent before its end keeps the connection for a second.
func TestOrdersLingers(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	x := l.exchange(t)
	f := l.start(t, l.orders(""), Options{}).Flows()[0]
	r := l.trader(t)
	for i := range 150 {
		r.send(fmt.Sprintf("order %04d", i))
		for x.bytes.Load() < int64(10*(i+1)) {
			time.Sleep(100 * time.Microsecond)
		}
	}
	testenv.Must(t, (<-x.conns).CloseWrite())
	begun := time.Now()
	await(t, f, "the end of the connection", func(s status.Flow) bool { return s.Orders.Lost == 1 })
	if took := time.Since(begun); took < 800*time.Millisecond || took > testenv.Within(5*time.Second) {
		t.Errorf("the connection has ended after %v", took)
	}
	if got := r.orders.Unfinished(); got != 0 {
		t.Errorf("%d orders have no receipt", got)
	}
}

// TestOrdersStop: nothing leaves after the answer to the kill switch, under full load. The switch stays on over a stop
// and a start of the flow.
func TestOrdersStop(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	x := l.exchange(t)
	d := l.start(t, l.orders(""), Options{})
	f := d.Flows()[0]
	r := l.trader(t)
	r.send("login")
	stop := make(chan struct{})
	load := make(chan map[string]int, 1)
	go func() { // as many orders as the flow takes
		counts := map[string]int{}
		defer func() { load <- counts }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if c, err := r.orders.Claim(); err == nil {
				if _, err := r.orders.Commit(c, copy(c.Data, "0123456789")); err != nil {
					counts[err.Error()]++
				}
			}
			var got [64]library.Receipt
			n, err := r.orders.Poll(got[:])
			if err != nil {
				counts[err.Error()]++
			}
			for _, one := range got[:n] {
				if one.Err == nil {
					counts["left"]++
				} else {
					counts[one.Err.(wire.Reason).String()]++
				}
			}
			var m [64]library.Message
			if n, err := r.replies.Poll(m[:]); err == nil {
				r.replies.Release(m[:n])
			}
		}
	}()
	time.Sleep(300 * time.Millisecond)
	answers, err := d.StopOrders(AllOrders)
	if err != nil || len(answers) != 1 || !answers[0].Stopped || answers[0].Flow != "orders" || answers[0].Unsent != 0 {
		t.Fatalf("%+v, %v", answers, err)
	}
	s := await(t, f, "the exchange to acknowledge", func(s status.Flow) bool { return s.Orders.Unacknowledged == 0 })
	sent := s.Orders.Bytes
	testenv.Wait(t, 10*time.Second, "the exchange to read", func() bool { return uint64(x.bytes.Load()) == sent })
	time.Sleep(200 * time.Millisecond)
	if s := f.Status(); s.Orders.Bytes != sent || uint64(x.bytes.Load()) != sent || s.Orders.Held <= answers[0].Held {
		t.Errorf("after the answer %+v: %d bytes left before, %d now, the exchange has %d; %+v", answers, sent, s.Orders.Bytes, x.bytes.Load(), s.Orders)
	}
	close(stop)
	counts := <-load
	if counts["left"] < 100 || counts["stopped"] < 10 || len(counts) != 2 {
		t.Errorf("receipts: %v", counts)
	}
	await(t, f, "each order that is held to be counted", func(s status.Flow) bool { return s.Dropped["orders_stopped"] == s.Orders.Held })
	t.Logf("%v, answer %+v", counts, answers[0])
	testenv.Must(t, errors.Join(f.Stop()))
	l.begin(t, f.Start)
	testenv.Wait(t, 10*time.Second, "a connection", func() bool { return f.Status().Orders.Connected })
	k := l.again(t, r)
	if got := k.send("again"); !errors.Is(got.Err, wire.Stopped) {
		t.Errorf("after a restart of the flow: %+v", got)
	}
	if _, err := d.ResumeOrders("orders"); err != nil {
		t.Fatal(err)
	}
	if got := k.send("again"); got.Err != nil {
		t.Errorf("with the switch off: %+v", got)
	}
	for _, name := range []string{"nothing", ""} {
		if _, err := d.StopOrders(name); err == nil {
			t.Errorf("a flow %q was stopped", name)
		}
	}
}

// again attaches as another process of the program would.
func (l *lab) again(t *testing.T, before *trader) *trader {
	t.Helper()
	before.client.Close()
	var r *trader
	testenv.Wait(t, 10*time.Second, "the program to attach", func() bool {
		k, err := library.Attach(library.Config{Socket: filepath.Join(l.dir, "attach.sock"), Name: "trader"})
		if err != nil {
			return false
		}
		t.Cleanup(func() { k.Close() })
		r = &trader{t: t, client: k}
		r.orders, err = k.Send("orders", 0)
		testenv.Must(t, err)
		r.replies, err = k.Receive("orders", 0)
		testenv.Must(t, err)
		return true
	})
	return r
}

// given returns a configuration of a flow from the program trader at end B, on connections that the program session gives.
func (l *lab) given() string {
	return fmt.Sprintf(`
region: {size: 32MiB}
workers: [{name: main, wait: sleep}]
attach: {socket: %s/attach.sock, programs: [{name: trader, user: "%d", out: 2MiB}, {name: session, user: "%[2]d"}]}
flows:
  - name: orders
    from: {attach: trader, message: 256}
    to: {order: {given: session, interface: %[3]s}}
`, l.dir, os.Getuid(), l.B.Ifname)
}

// login connects a program to the exchange at end B.
func (l *lab) login(t *testing.T) *net.TCPConn {
	t.Helper()
	var c *net.TCPConn
	l.B.Do(t, func() {
		var err error
		c, err = net.DialTCP("tcp", nil, &net.TCPAddr{IP: l.A.IP.AsSlice(), Port: 4001})
		testenv.Must(t, err)
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// answers checks that a program reads what the exchange sends back.
func answers(t *testing.T, from io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(from, b); err != nil || string(b) != want {
		t.Fatalf("the exchange has said %q, want %q: %v", b, want, err)
	}
}

// TestOrdersGiven: a program logs in and gives its connection, another one sends orders on it, and the first one reads. The
// end of the flow, of the port or of the program gives the connection back.
func TestOrdersGiven(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	l.exchange(t)
	d := l.start(t, l.given(), Options{})
	f := d.Flows()[0]
	attach := func(name string) *library.Client {
		k, err := library.Attach(library.Config{Socket: filepath.Join(l.dir, "attach.sock"), Name: name})
		testenv.Must(t, err)
		t.Cleanup(func() { k.Close() })
		return k
	}
	r, k := &trader{t: t, client: attach("trader")}, attach("session")
	refused := func(what string, err error, reason string) {
		t.Helper()
		if why, is := errors.AsType[*library.RefusedError](err); !is || why.Reason != reason {
			t.Errorf("%s: %v, want %s", what, err, reason)
		}
	}
	begun := time.Now()
	_, err := r.client.Send("orders", 0)
	if refused("orders before the connection", err, "busy"); time.Since(begun) > testenv.Within(5*time.Second) {
		t.Errorf("the refusal took %v", time.Since(begun))
	}
	c := l.login(t)
	fmt.Fprint(c, "login")
	answers(t, c, "login")
	_, err = r.client.Give("orders", c)
	refused("another program gives", err, "no_such_flow")
	g, err := k.Give("orders", c)
	testenv.Must(t, err)
	_, err = k.Give("orders", c)
	refused("again", err, "busy")
	r.orders, err = r.client.Send("orders", 0)
	testenv.Must(t, err)
	for i := range 200 {
		text := fmt.Sprintf("buy %08d", i)
		if got := r.send(text); got.Err != nil {
			t.Fatalf("order %d: %+v", i, got)
		}
		answers(t, g, text)
	}
	if o := f.Status().Orders; o.Given != "session" || !o.Connected || o.Segments < 50 || o.Remote != net.JoinHostPort(l.A.IP.String(), "4001") {
		t.Errorf("%+v", o)
	}

	testenv.Must(t, f.Stop())
	refused("after the flow's end", g.Err(), "closing")
	fmt.Fprint(c, "the connection goes on")
	answers(t, c, "the connection goes on")

	l.begin(t, f.Start)
	g, err = k.Give("orders", c)
	testenv.Must(t, err)
	r = l.reopened(t, r)
	r.send("again")
	answers(t, g, "again")
	if err := g.Close(); err != nil || g.Err() == nil {
		t.Fatalf("%v, %v", err, g.Err())
	}
	fmt.Fprint(c, "and on")
	answers(t, c, "and on")
	await(t, f, "the end of the connection", func(s status.Flow) bool { return !s.Orders.Connected })

	g, err = k.Give("orders", c)
	testenv.Must(t, err)
	r = l.reopened(t, r)
	r.send("the last one")
	answers(t, g, "the last one")
	if err := k.Close(); err != nil { // the program ends
		t.Fatal(err)
	}
	await(t, f, "the end of the connection", func(s status.Flow) bool { return !s.Orders.Connected })
	if err := g.Err(); !errors.Is(err, library.ErrGone) {
		t.Errorf("the program's end: %v", err)
	}
	fmt.Fprint(c, "for ever")
	answers(t, c, "for ever")
}

// reopened opens the port for orders again, which the end of a connection has closed.
func (l *lab) reopened(t *testing.T, r *trader) *trader {
	t.Helper()
	testenv.Wait(t, 10*time.Second, "the port to open", func() bool {
		s, err := r.client.Send("orders", 0)
		if err == nil {
			r.orders = s
		}
		return err == nil
	})
	return r
}
