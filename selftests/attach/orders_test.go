package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// orderLen is the length of each order, which is its number as text.
const orderLen = 10

// bourse keeps what came over each connection.
type bourse struct {
	listener *net.TCPListener
	mu       sync.Mutex
	conns    []*net.TCPConn
	came     []*bytes.Buffer
	going    sync.WaitGroup
}

func newBourse(t *testing.T, at *testenv.End) *bourse {
	t.Helper()
	b := &bourse{}
	at.Do(t, func() {
		var err error
		b.listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: at.IP.AsSlice(), Port: 4001})
		testenv.Must(t, err)
	})
	b.going.Go(func() {
		for {
			c, err := b.listener.AcceptTCP()
			if err != nil {
				return
			}
			b.add(c)
		}
	})
	t.Cleanup(func() { b.close(); b.going.Wait() })
	return b
}

func (b *bourse) add(c *net.TCPConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	came := &bytes.Buffer{}
	b.conns, b.came = append(b.conns, c), append(b.came, came)
	b.going.Go(func() {
		defer c.Close()
		_, _ = c.Write([]byte("hello")) // so that segments have time stamps
		one := make([]byte, 4096)
		for {
			n, err := c.Read(one)
			b.mu.Lock()
			came.Write(one[:n])
			b.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}

// end resets the newest connection.
func (b *bourse) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.conns); n > 0 {
		_ = b.conns[n-1].SetLinger(0)
		_ = b.conns[n-1].Close() // or it has ended already
	}
}

func (b *bourse) close() {
	b.listener.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
}

// strategy is a program that logs in over each connection, and remembers what it knows of each order.
type strategy struct {
	context.Context
	t      *testing.T
	sender *attached.Sender
	last   int
	logins map[string]bool
	said   map[string]error // receipts
	open   map[uint64]string
}

// order sends an order if a frame is free.
func (s *strategy) order(kind string) bool {
	f, err := s.sender.Claim()
	if err != nil {
		return false
	}
	s.last++
	text := fmt.Sprintf("%s%0*d", kind, orderLen-len(kind), s.last)
	sequence, err := s.sender.Commit(f, copy(f.Data, text))
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	s.open[sequence] = text
	if kind == "login" {
		s.logins[text] = true
	}
	return true
}

// poll takes receipts. It returns false if the port has ended.
func (s *strategy) poll() bool {
	var got [64]attached.Receipt
	n, err := s.sender.Poll(got[:])
	for _, r := range got[:n] {
		text, is := s.open[r.Sequence]
		if !is {
			s.t.Fatalf("message %d has another receipt: %v", r.Sequence, r.Err)
		}
		delete(s.open, r.Sequence)
		s.said[text] = r.Err
	}
	return err == nil
}

// again opens the port again, takes the receipts of what there was, and logs in.
func (s *strategy) again() {
	for s.poll() || len(s.open) > 0 {
		if err := s.sender.Wait(s, time.Second); err != nil {
			s.t.Fatalf("%d orders are open: %v", len(s.open), err)
		}
		if len(s.open) == 0 && s.poll() {
			break
		}
	}
	for !s.poll() {
		if err := s.sender.Wait(s, time.Second); err != nil {
			s.t.Fatal(err)
		}
	}
	s.order("login")
}

// TestKilledOrders: whatever ends between a program and an exchange (the daemon, the flow, the connection), an order is
// at the exchange once at most, on the connection for which it was meant: none is in front of the program's login. An
// order whose receipt says that it has not left has not.
func TestKilledOrders(t *testing.T) {
	testenv.Root(t)
	seed := setting.Seed(t)
	random := rand.New(rand.NewPCG(seed, 5))
	rounds := kills(t)
	if testing.Short() {
		rounds = 5
	}
	p := testenv.NewPair(t, testenv.PairOptions{})
	b, dir := newBourse(t, &p.B), t.TempDir()
	text := fmt.Sprintf(`
region: {size: 32MiB, pages: ordinary}
workers: [{name: main}]
attach: {socket: %s/attach.sock, programs: [{name: trader, user: "%d", out: 2MiB}]}
flows:
  - {name: orders, from: {attach: trader, message: 256}, to: {order: {connect: "%s:4001", interface: %s, retry: 20ms}}}
`, dir, os.Getuid(), p.B.IP, p.A.Ifname)
	d := daemon.Launch(t, program, p.A.Namespace, dir, text)
	connected := func() {
		t.Helper()
		d.Until(t, "a connection", func(s *status.Daemon) bool {
			return len(s.Flows) == 1 && s.Flows[0].Orders != nil && s.Flows[0].Orders.Connected
		})
	}
	connected()
	k, err := attached.Attach(attached.Config{Socket: filepath.Join(dir, "attach.sock"), Name: "trader"})
	testenv.Must(t, err)
	defer k.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(5*time.Minute))
	defer cancel()
	s := &strategy{Context: ctx, t: t, logins: map[string]bool{}, said: map[string]error{}, open: map[uint64]string{}}
	s.sender, err = k.Send("orders", 0)
	testenv.Must(t, err)
	s.order("login")
	for round := range rounds {
		for end := time.Now().Add(time.Duration(random.IntN(30)) * time.Millisecond); time.Now().Before(end); {
			s.order("")
			s.poll()
		}
		what := round % 3
		switch what {
		case 1:
			b.end()
		case 2:
			if out, err := d.Control("stop", "orders"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		default:
			d.Kill()
		}
		for range 1 + random.IntN(20) { // the program does not know yet
			s.order("")
		}
		switch what {
		case 1:
		case 2:
			if out, err := d.Control("start", "orders"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		default:
			d = daemon.Launch(t, program, p.A.Namespace, dir, text)
		}
		connected()
		for range random.IntN(5) {
			s.order("")
		}
		s.again()
	}
	for len(s.open) > 0 && s.poll() {
		testenv.Must(t, s.sender.Wait(s, time.Second))
	}
	d.Terminate(t)
	b.close()
	b.going.Wait()
	seen := map[string]int{}
	for i, c := range b.came {
		for n := 0; c.Len() >= orderLen; n++ {
			one := string(c.Next(orderLen))
			if seen[one]++; seen[one] > 1 {
				t.Errorf("order %s came %d times", one, seen[one])
			}
			if n == 0 && !s.logins[one] {
				t.Errorf("connection %d begins with order %s", i, one)
			}
			if why := s.said[one]; why != nil && !errors.Is(why, wire.NotKnown) {
				t.Errorf("order %s is at the exchange, and its receipt says: %v", one, why)
			}
		}
	}
	count := map[string]int{}
	for _, why := range s.said {
		if why == nil {
			why = wire.None
		}
		count[why.(wire.Reason).String()]++
	}
	if s.last != len(s.said) || count["none"] == 0 || count["not_known"] == 0 || len(seen) < count["none"]/2 {
		t.Errorf("%d orders, %d at the exchange, receipts %v", s.last, len(seen), count)
	}
	t.Logf("%d orders over %d connections: %d at the exchange, receipts %v", s.last, len(b.came), len(seen), count)
}
