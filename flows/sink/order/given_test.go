package order

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// giver is a program that has logged in at the exchange, and gives its connection.
type giver struct {
	*rig
	conn     *net.TCPConn // the program's end
	exchange *net.TCPConn
	ended    chan string
	release  func()
}

// connect connects a program at an end to the exchange, and logs in.
func (r *rig) connect(from *testenv.End) *giver {
	r.t.Helper()
	s := &giver{rig: r, ended: make(chan string, 1)}
	from.Do(r.t, func() {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(r.exchange.address))
		testenv.Must(r.t, err)
		s.conn = c
	})
	r.t.Cleanup(func() { s.conn.Close() })
	s.exchange = r.exchange.accept()
	s.talks(s.conn, s.exchange, "login")
	s.talks(s.exchange, s.conn, "welcome")
	return s
}

// talks checks that one end hears what the other one says.
func (s *giver) talks(from io.Writer, to io.Reader, text string) {
	s.t.Helper()
	b := make([]byte, len(text))
	_, err := io.WriteString(from, text)
	if err == nil {
		_, err = io.ReadFull(to, b)
	}
	if err != nil || string(b) != text {
		s.t.Fatalf("%q instead of %q: %v", b, text, err)
	}
}

// give gives the connection to the flow, and waits until the worker has it.
func (s *giver) give() {
	s.t.Helper()
	err := s.offer()
	testenv.Must(s.t, err)
	s.await("the connection", func() bool { return s.sink.conn != nil })
}

func (s *giver) offer() error {
	s.t.Helper()
	raw, err := s.conn.SyscallConn()
	if err == nil {
		var release func()
		outer := raw.Control(func(fd uintptr) {
			release, err = s.sink.keeper.offer(int(fd), uint32(os.Getuid()), func(why string) { s.ended <- why })
		})
		if err = errors.Join(outer, err); err == nil {
			s.release = release
		}
	}
	return err
}

// released takes the connection back.
func (s *giver) released() {
	s.t.Helper()
	done := make(chan struct{})
	go func() { s.release(); close(done) }()
	s.await("the connection to be given back", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// hears reads all of n bytes that the exchange sends, as a program does that knows when to try again.
func (s *giver) hears(n int) <-chan error {
	done := make(chan error, 1)
	go func() {
		b := make([]byte, 4096)
		refused := 0
		for n > 0 {
			k, err := s.conn.Read(b[:min(n, len(b))])
			if errors.Is(err, unix.EPERM) {
				refused++
				runtime.Gosched()
				continue
			}
			if err != nil {
				done <- err
				return
			}
			n -= k
		}
		s.t.Logf("%d reads were refused", refused)
		done <- nil
	}()
	return done
}

// TestGiven: orders leave on a connection that a program has given, in segments of ours, whatever the network does. The
// program reads what the exchange sends meanwhile. When it has the connection back, both sides go on to talk.
func TestGiven(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct {
		name   string
		bad    *testenv.Disturbance
		orders int
	}{
		{name: "no round trip", orders: 2000},
		{name: "loss", orders: 3000, bad: &testenv.Disturbance{Seed: 4, Loss: 0.01, Delay: 50 * time.Microsecond, Jitter: 100 * time.Microsecond, Reorder: 0.01}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends := testenv.NewSwitch(t, 2, testenv.PairOptions{})
			if c.bad != nil {
				ends[1].Disturb(t, *c.bad)
			}
			r := newRig(t, ends[0], ends[1], options{given: true})
			if err := r.sink.Ready(); !errors.Is(err, attach.ErrGiveFirst) {
				t.Errorf("without a connection: %v", err)
			}
			if why := r.send([]byte("too early")); why != wire.NotDone {
				t.Errorf("an order without a connection: %v", why)
			}
			s := r.connect(ends[0])
			s.give()
			orders, bytes := sends(t, c.orders), 0
			var b [256]byte
			echoed := make(chan error, 1)
			go func() { // the exchange checks each order, and answers as many bytes
				var want, got [256]byte
				for n := range uint64(orders) {
					one := orderOf(want[:], n, 100)
					if _, err := io.ReadFull(s.exchange, got[:len(one)]); err != nil || string(got[:len(one)]) != string(one) {
						echoed <- fmt.Errorf("order %d is wrong: %w", n, err)
						return
					}
					if _, err := s.exchange.Write(one); err != nil {
						echoed <- err
						return
					}
				}
				echoed <- nil
			}()
			for n := range uint64(orders) {
				bytes += len(orderOf(b[:], n, 100))
			}
			heard := s.hears(bytes)
			for n := range uint64(orders) {
				if why := r.send(orderOf(b[:], n, 100)); why != wire.None {
					t.Fatalf("order %d: %v", n, why)
				}
			}
			for _, what := range []<-chan error{echoed, heard} {
				r.await("end of the stream", func() bool { return len(what) > 0 })
				testenv.Must(t, <-what)
			}
			o := r.status().Orders
			t.Logf("%d segments, kernel %v, waits %v, %d early, %d sent again", o.Segments, o.Kernel, o.Waits, o.Early, o.Retransmitted)
			if left := o.Segments + total(o.Kernel); left != uint64(orders) || o.Segments < left/10 || o.Lost != 0 || o.Received != 0 {
				t.Errorf("%d orders are counted: %+v", left, o)
			}
			s.released()
			s.talks(s.conn, s.exchange, "logout")
			s.talks(s.exchange, s.conn, "goodbye")
			if len(s.ended) > 0 {
				t.Errorf("the program was told: %s", <-s.ended)
			}
			s.give() // once more
			s.send1("an order")
			s.close() // the flow ends
			if why := <-s.ended; why != errEnds.Error() {
				t.Errorf("the program was told: %s", why)
			}
			s.talks(s.conn, s.exchange, "logout")
		})
	}
}

// send1 sends one order, and checks that the exchange gets it.
func (s *giver) send1(text string) {
	s.t.Helper()
	b := make([]byte, len(text))
	if why := s.send([]byte(text)); why != wire.None {
		s.t.Fatal(why)
	}
	if _, err := io.ReadFull(s.exchange, b); err != nil || string(b) != text {
		s.t.Fatalf("%q instead of %q: %v", b, text, err)
	}
}

// TestGivenEnds: however a given connection ends, orders are refused then, the program is told, and it may give another
// one. When the program has ended, the exchange gets all orders and the end of the stream. What the program must not do
// ends the connection, too.
func TestGivenEnds(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{given: true})
	raw := func(c *net.TCPConn, f func(fd int)) {
		t.Helper()
		r, err := c.SyscallConn()
		if err == nil {
			err = r.Control(func(fd uintptr) { f(int(fd)) })
		}
		testenv.Must(t, err)
	}
	for i, c := range []struct {
		name, says string
		end        func(s *giver)
	}{
		{"the exchange closes", "the peer has closed", func(s *giver) { s.exchange.Close() }},
		{"the exchange resets", "reset by peer", func(s *giver) { s.exchange.SetLinger(0); s.exchange.Close() }},
		{"the program shuts down", "not established", func(s *giver) { s.conn.CloseWrite() }},
		{"the program disconnects", "not established", func(s *giver) {
			raw(s.conn, func(fd int) { testenv.Must(t, disconnect(fd)) })
		}},
		{"the program writes", "has written to the connection", func(s *giver) {
			s.talks(s.conn, s.exchange, "by itself")
			for range 3 { // whichever way they go, and though nobody looks at the connection in between
				s.send([]byte("an order"))
			}
		}},
		{"the program ends", "", func(s *giver) {
			for range 20 {
				s.send([]byte("the last orders"))
			}
			s.conn.Close()
			s.released()
			all, err := io.ReadAll(s.exchange)
			if want := strings.Repeat("the last orders", 20); err != nil || string(all) != want {
				t.Errorf("the exchange gets %q, %v", all, err)
			}
		}},
	} {
		s := r.connect(&p.A)
		s.give()
		if err := s.offer(); !errors.Is(err, wire.Busy) {
			t.Errorf("%s: a second connection: %v", c.name, err)
		}
		s.send1("an order")
		c.end(s)
		r.await("end", func() bool { return r.sink.conn == nil })
		if c.says != "" {
			if why := <-s.ended; !strings.Contains(why, c.says) {
				t.Errorf("%s: the program was told: %s", c.name, why)
			}
		}
		if why := r.send([]byte("an order")); why != wire.NotDone {
			t.Errorf("%s: an order without a connection: %v", c.name, why)
		}
		if err := r.sink.Ready(); !errors.Is(err, attach.ErrGiveFirst) {
			t.Errorf("%s: %v", c.name, err)
		}
		if o := r.status(); o.Orders.Lost != uint64(i+1) || o.Orders.Connections != uint64(i+1) || o.Orders.Failed != 0 {
			t.Errorf("%s: %+v", c.name, o.Orders)
		}
	}
}

// TestGivenElsewhere: a connection that is not on the flow's interface is refused, and one of a flow that has ended.
func TestGivenElsewhere(t *testing.T) {
	testenv.Root(t)
	d := newDetours(t, false)
	r := newRig(t, d.client, d.exchange, options{given: true, address: d.address})
	d.client.Run(t, "ip", "route", "replace", d.address.String(), "via", strings.Fields(d.second)[0], "dev", "second") // with its address
	s := r.connect(d.client)
	if err := s.offer(); err == nil || !strings.Contains(err.Error(), "which is no address of "+d.client.Ifname) {
		t.Errorf("%v", err)
	}
	s.talks(s.conn, s.exchange, "the program keeps it")
	d.client.Run(t, "ip", "route", "del", d.address.String(), "via", strings.Fields(d.second)[0], "dev", "second")
	s = r.connect(d.client)
	r.close()
	if err := s.offer(); err == nil {
		t.Error("a flow that has ended takes a connection")
	}
	s.talks(s.conn, s.exchange, "the program keeps it")
}

// TestGivenStranger: a connection that another user has made, or to another exchange, is refused. The program keeps it.
func TestGivenStranger(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{given: true})
	s := r.connect(&p.A)
	belongs := func(user int) {
		t.Helper()
		raw, err := s.conn.SyscallConn()
		if err == nil {
			outer := raw.Control(func(fd uintptr) { err = unix.Fchown(int(fd), user, -1) })
			err = errors.Join(outer, err)
		}
		testenv.Must(t, err)
	}
	refused := func(says string) {
		t.Helper()
		if err := s.offer(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
		s.talks(s.conn, s.exchange, "the program keeps it")
	}
	belongs(65500)
	refused(fmt.Sprintf("its socket belongs to user 65500, and the program to user %d", os.Getuid()))
	belongs(os.Getuid())
	at := s.exchange.LocalAddr().(*net.TCPAddr).AddrPort()
	r.sink.keeper.peer = netip.AddrPortFrom(at.Addr(), at.Port()-1).String()
	refused("and the exchange is " + r.sink.keeper.peer + " (to.order.peer)")
	if o := r.status().Orders; o.Failed != 2 || o.Connections != 0 {
		t.Errorf("%+v", o)
	}
	r.sink.keeper.peer = at.String()
	s.give()
	s.send1("an order")
}

// TestGivenHotPath: an order on a given connection allocates nothing, whichever way it goes.
func TestGivenHotPath(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{given: true})
	s := r.connect(&p.A)
	s.give()
	go io.Copy(io.Discard, s.exchange)
	payload := []byte("an order of some bytes")
	for range 200 {
		r.send(payload)
	}
	if a := testenv.AllocsPerRun(t, 500, func() { r.send(payload) }); a >= 1 {
		t.Errorf("an order allocates %v times", a)
	}
	if o := r.status().Orders; o.Segments < 100 {
		t.Errorf("orders went the kernel's way: %+v", o)
	}
}
