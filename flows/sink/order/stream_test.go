package order

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// sends returns how many orders the tests of streams send: as UNIFIEDD_ORDERS says, or some.
func sends(t *testing.T, some int) int {
	text := os.Getenv("UNIFIEDD_ORDERS")
	if text == "" {
		return testenv.Fewer(some)
	}
	n, err := strconv.Atoi(text)
	testenv.Must(t, err)
	return n
}

// TestStream: whatever the network does to packets, the exchange gets exactly the orders that were sent, each once and in
// order, without a reset. Every order is counted as a segment of ours, or with the reason why it went the kernel's way.
func TestStream(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct {
		name    string
		bad     *testenv.Disturbance
		window  int
		slow    bool // the exchange stops reading now and then
		pace    time.Duration
		six     bool
		longest int
		orders  int
	}{
		{name: "one after the other", orders: 5000, longest: 100},
		{name: "IPv6", orders: 2000, longest: 100, six: true},
		{name: "loss", orders: 20000, longest: 200, bad: &testenv.Disturbance{Seed: 1, Loss: 0.01, Delay: 50 * time.Microsecond, Jitter: 100 * time.Microsecond, Reorder: 0.01}},
		{name: "loss, longer round trip", orders: 20000, longest: 200, bad: &testenv.Disturbance{Seed: 2, Loss: 0.01, Delay: 200 * time.Microsecond, Jitter: 100 * time.Microsecond, Reorder: 0.01}},
		{name: "no round trip", orders: 3000, longest: 64, pace: 100 * time.Microsecond},
		{name: "small window", orders: 100, longest: 700, window: 2048, slow: true},
		{name: "small window, loss", orders: 80, longest: 700, window: 2048, slow: true, bad: &testenv.Disturbance{Seed: 3, Loss: 0.01, Delay: 50 * time.Microsecond}},
		{name: "long orders", orders: 3000, longest: 1448},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends := testenv.NewSwitch(t, 2, testenv.PairOptions{IPv6: c.six})
			if c.bad != nil {
				ends[1].Disturb(t, *c.bad)
			}
			o := options{window: c.window}
			if c.six {
				o.address = ends[1].IP6
			}
			r := newRig(t, ends[0], ends[1], o)
			var pause func()
			if c.slow {
				rnd := rand.New(rand.NewPCG(7, 7))
				pause = func() {
					if rnd.IntN(200) == 0 {
						time.Sleep(20 * time.Millisecond)
					}
				}
			}
			got := read(r.exchange.accept(), c.longest, pause)
			var b [2048]byte
			n := sends(t, c.orders)
			if c.slow {
				n = min(n, 20*c.orders) // each window that the exchange closes costs 0.2 s
			}
			for i := range uint64(n) {
				if why := r.send(orderOf(b[:], i, c.longest)); why != wire.None {
					t.Fatalf("order %d: %v", i, why)
				}
				for end := time.Now().Add(c.pace); time.Now().Before(end); {
					r.round()
				}
			}
			r.await("whole stream", func() bool { return got.orders.Load() == uint64(n) || len(got.err) > 0 })
			s := r.status().Orders
			t.Logf("%d orders: %d segments, kernel %v, waits %v, %d early, %d retransmitted, %d partial, round trip %.0f µs", n, s.Segments, s.Kernel, s.Waits, s.Early, s.Retransmitted, s.Partial, s.RoundTrip*1e6)
			r.close()
			if err := <-got.err; err != nil {
				t.Errorf("after %d orders: %v", got.orders.Load(), err)
			}
			if have := got.orders.Load(); have != uint64(n) {
				t.Errorf("the exchange has %d of %d orders", have, n)
			}
			if have := s.Segments + total(s.Kernel); have != uint64(n) || s.Lost != 0 || s.Connections != 1 {
				t.Errorf("%d orders are counted, %d connections were lost: %+v", have, s.Lost, s)
			}
			if s.Segments < uint64(n)/10 { // under loss most of a burst is sent while the kernel recovers
				t.Errorf("too few orders left in segments of ours: %+v", s)
			}
		})
	}
}

// TestNeighbour: when the exchange gets another address of Ethernet, orders follow. None is lost.
func TestNeighbour(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{})
	got := read(r.exchange.accept(), 100, nil)
	var b [256]byte
	n := uint64(0)
	for change := range 3 {
		for range 200 {
			r.send(orderOf(b[:], n, 100))
			n++
		}
		p.B.Run(t, "ip", "link", "set", p.B.Ifname, "address", "02:77:00:00:01:0"+strconv.Itoa(change))
		p.A.Run(t, "ip", "neigh", "replace", p.B.IP.String(), "lladdr", "02:77:00:00:01:0"+strconv.Itoa(change), "dev", p.A.Ifname)
	}
	before := r.status().Orders.Segments
	r.await("path", func() bool {
		path := r.sink.keeper.pathError()
		r.send(orderOf(b[:], n, 100))
		n++
		time.Sleep(5 * time.Millisecond)
		return path == "" && r.status().Orders.Segments > before+20
	})
	r.await("whole stream", func() bool { return got.orders.Load() == n || len(got.err) > 0 })
	p.B.Run(t, "ip", "neigh", "flush", "dev", p.B.Ifname)
	p.A.Run(t, "ip", "neigh", "del", p.B.IP.String(), "dev", p.A.Ifname)
	for range 50 {
		r.send(orderOf(b[:], n, 100))
		n++
		time.Sleep(time.Millisecond)
	}
	r.await("whole stream after the neighbour was deleted", func() bool { return got.orders.Load() == n || len(got.err) > 0 })
	r.close()
	testenv.Check(t, <-got.err)
}

// TestEnds: after a reset, or an end of the exchange's side, orders are refused and counted until there is a new
// connection. An end of the flow in the middle gives the exchange all orders, and the end of the stream.
func TestEnds(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{})
	shut := 0
	r.sink.keeper.shut = func(string) error { shut++; return nil }
	var b [256]byte
	for i, end := range []string{"reset", "close", "shutdown"} {
		c := r.exchange.accept()
		got := read(c, 100, nil)
		for n := range uint64(100) {
			if why := r.send(orderOf(b[:], n, 100)); why != wire.None {
				t.Fatal(why)
			}
		}
		r.await("stream", func() bool { return got.orders.Load() == 100 })
		switch end {
		case "reset":
			c.SetLinger(0)
			c.Close()
		case "close":
			c.Close()
		case "shutdown":
			c.CloseWrite()
		}
		r.await("end", func() bool { return r.sink.conn == nil })
		if why := r.send(orderOf(b[:], 0, 100)); why != wire.NotDone {
			t.Errorf("%s: an order without a connection: %v", end, why)
		}
		r.await("connection", func() bool { return r.sink.conn != nil })
		s := r.status()
		if s.Orders.Lost != uint64(i+1) || s.Orders.Connections != uint64(i+2) || s.Dropped["not_connected"] != uint64(i+1) || shut != i+1 {
			t.Errorf("%s: %d ports closed, %v, %+v", end, shut, s.Dropped, s.Orders)
		}
	}
	got := read(r.exchange.accept(), 100, nil)
	for n := range uint64(1000) {
		r.send(orderOf(b[:], n, 100))
	}
	r.close() // while orders are under way
	if err := <-got.err; err != nil || got.orders.Load() != 1000 {
		t.Errorf("%d orders, then %v", got.orders.Load(), err)
	}
}

// TestStop: under full load no order leaves after the kill switch has been seen, and all that come then are counted.
func TestStop(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{})
	got := read(r.exchange.accept(), 100, nil)
	var b [256]byte
	n := uint64(0)
	offer := func() (why wire.Reason) {
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
			why = r.send(orderOf(b[:], n, 100))
			if why == wire.None {
				n++
			}
		}
		return why
	}
	for range 3 {
		offer()
		r.env.Halt.Stop()
		sent := n
		if why := offer(); why != wire.Stopped || n != sent {
			t.Fatalf("the switch is on: %v, %d orders left", why, n-sent)
		}
		s := r.status()
		if held := r.env.Halt.Held(); held == 0 || !s.Orders.Stopped || s.Orders.Held != held {
			t.Errorf("%d orders held: %+v", held, s.Orders)
		}
		r.env.Halt.Resume()
	}
	r.await("stream", func() bool { return got.orders.Load() == n })
	r.close()
	if err := <-got.err; err != nil || got.orders.Load() != n {
		t.Errorf("%d of %d orders, then %v", got.orders.Load(), n, err)
	}
}

// TestHotPath: an order allocates nothing, whichever way it goes, and neither does a round.
func TestHotPath(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{times: filepath.Join(t.TempDir(), "times.csv")})
	r.tick = uint64(time.Now().UnixNano())
	got := read(r.exchange.accept(), 100, nil)
	var b [256]byte
	n := uint64(0)
	one := func() { r.send(orderOf(b[:], n, 100)); n++ }
	for range 200 {
		one()
	}
	if a := testenv.AllocsPerRun(t, 500, one); a >= 1 {
		t.Errorf("an order in a segment of ours allocates %v times", a)
	}
	if s := r.status().Orders; s.Segments < 100 { // on veth some acknowledgements are early
		t.Errorf("orders went the kernel's way: %+v", s)
	}
	r.sink.conn.SetPath(nil)
	r.sink.keeper.cancel() // it would set the path again
	r.sink.keeper.going.Wait()
	r.sink.conn.SetPath(nil)
	before := r.status().Orders.Kernel["no_path"]
	if a := testenv.AllocsPerRun(t, 200, one); a >= 1 {
		t.Errorf("an order that goes the kernel's way allocates %v times", a)
	}
	if after := r.status().Orders.Kernel["no_path"]; after < before+200 {
		t.Errorf("%d orders went the kernel's way", after-before)
	}
	r.env.Halt.Stop()
	if a := testenv.AllocsPerRun(t, 200, func() { r.send(b[:20]); r.round() }); a >= 1 {
		t.Errorf("an order that is held allocates %v times", a)
	}
	r.await("stream", func() bool { return got.orders.Load() == n })
}

// TestStopsReading: an exchange that stops reading makes orders wait. At most one is with the kernel and unsent. The kill
// switch refuses the others, and says that it still leaves. When the exchange reads again it gets what left.
func TestStopsReading(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{window: 4096})
	c := r.exchange.accept()
	var b [1024]byte
	n, waits := uint64(0), func() uint64 { return total(r.status().Orders.Waits) }
	for stuck := time.Now(); time.Since(stuck) < 300*time.Millisecond; r.round() {
		r.free.Drop(r.free.Len(), r.free.Len())
		if r.batch.Len == 0 {
			r.put(orderOf(b[:], n, 600))
			n, stuck = n+1, time.Now()
		}
	}
	if r.batch.Len != 1 || waits() == 0 {
		t.Fatalf("%d orders wait: %+v", r.batch.Len, r.status().Orders)
	}
	n-- // the last one waits
	r.env.Halt.Stop()
	r.round()
	r.round()
	unsent, calls := r.env.Halt.Unsent()
	if r.batch.Len != 0 || r.env.Halt.Held() != 1 || unsent > 1 || calls < 2 {
		t.Errorf("with the switch on: %d orders wait, %d are held, %d unsent", r.batch.Len, r.env.Halt.Held(), unsent)
	}
	got := read(c, 600, nil)
	r.await("stream", func() bool { return got.orders.Load() == n || len(got.err) > 0 })
	time.Sleep(50 * time.Millisecond)
	if have := got.orders.Load(); have != n {
		t.Errorf("the exchange has %d of %d orders", have, n)
	}
	r.close()
	testenv.Check(t, <-got.err)
}

// TestEarly: what the exchange answers before the kernel knows of the order is not lost, and comes at once, without the
// exchange sending it again. The kernel learns of the acknowledgement with the next orders.
func TestEarly(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{})
	c := r.exchange.accept()
	echoed := make(chan error, 1)
	go func() { _, err := io.Copy(c, c); echoed <- err }()
	r.send([]byte("login"))
	s := r.sink
	r.await("answer", func() bool { return s.count.received.Load() == 5 })
	for i := range 20 {
		payload := []byte("an order with an answer")
		for s.conn.Guard(len(payload)) != tcpsend.None { // as an earlier acknowledgement was lowered
			r.send(payload)
			r.await("answer", func() bool { return s.count.received.Load() == s.count.bytes.Load() })
		}
		lowered, one := s.conn.Early(), [1]umem.Frame{}
		s.own.Pop(one[:])
		b := r.region.At(one[0].Addr, tcpsend.Headroom+uint64(len(payload)))
		copy(b[tcpsend.Headroom:], payload)
		start := s.conn.Build(b, time.Now())
		s.transmit(umem.Frame{Addr: one[0].Addr + uint64(start), Len: uint32(len(b) - start)})
		for end := time.Now().Add(testenv.Within(100 * time.Millisecond)); s.conn.Waiting() < len(payload); {
			if time.Now().After(end) {
				t.Fatalf("order %d: the kernel has %d bytes of the answer", i, s.conn.Waiting())
			}
		}
		if !s.conn.Book(payload) {
			t.Fatal("the kernel does not take the order")
		}
		s.count.bytes.Add(uint64(len(payload)))
		s.conn.Guard(len(payload))
		if s.conn.Early() == lowered {
			t.Errorf("order %d: no acknowledgement was lowered", i)
		}
		r.await("answer", func() bool { return s.count.received.Load() == s.count.bytes.Load() })
	}
	for range 50 {
		r.send([]byte("the next order"))
		r.await("answer", func() bool { return s.count.received.Load() == s.count.bytes.Load() })
	}
	r.await("acknowledgement of everything", func() bool { return s.conn.Refresh() && s.conn.Unacknowledged() == 0 })
	if o := r.status().Orders; o.Retransmitted > 20 || o.Lost != 0 { // the kernel probes for a loss when it has waited for long
		t.Errorf("%+v", o)
	}
	r.close()
	testenv.Check(t, <-echoed)
}
