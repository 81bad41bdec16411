package connect

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// journal records events in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// recorder is a queue pair that only changes its state. It checks the rules for changes and records
// them.
type recorder struct {
	rdma.QueuePair
	name  string
	of    Parameters
	state rdma.State
	log   *journal
	fails error
}

func (r *recorder) QPN() uint32 { return r.of.QPN }

func (r *recorder) Modify(a rdma.Attributes, given rdma.Mask) error {
	if r.fails != nil {
		return r.fails
	}
	if err := rdma.CheckChange(r.of.Transport, r.state, a.State, given); err != nil {
		return err
	}
	r.state = a.State
	r.log.add(r.name + " " + a.State.String())
	return nil
}

// end makes an End in INIT whose state changes are recorded.
func end(log *journal, name string, p Parameters) End {
	return End{Queue: &recorder{name: name, of: p, state: rdma.Init, log: log}, Settings: Defaults(), Parameters: p, Hello: []byte(name)}
}

func listen(t *testing.T, c Config) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0", c)
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, l.Close())
		if n := l.Handshakes(); n != 0 {
			t.Errorf("%d handshakes after Close", n)
		}
	})
	return l
}

// serve accepts one request with an End, in the background.
func serve(t *testing.T, l *Listener, e End) <-chan result {
	done := make(chan result, 1)
	go func() {
		r, err := l.Accept(t.Context())
		if err != nil {
			done <- result{nil, err}
			return
		}
		c, err := r.Accept(e)
		done <- result{c, err}
	}()
	return done
}

type result struct {
	conn *Conn
	err  error
}

// waitFor waits until the listener has counted n failures with a reason.
func waitFor(t *testing.T, l *Listener, r Reason, n uint64) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); l.Failures()[r] < n; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("failures are %v, want %d of %s", l.Failures(), n, r)
		}
	}
}

func wantReason(t *testing.T, err error, r Reason, says string) {
	t.Helper()
	if ReasonOf(err) != r || !strings.Contains(err.Error(), says) {
		t.Errorf("%v (%q), want %q (%q)", err, ReasonOf(err), says, r)
	}
}

// TestOrder: the server's queue pair is in RTS before the client's changes, and the client's is in
// RTS before the server's Accept returns.
func TestOrder(t *testing.T) {
	for _, transport := range []rdma.Transport{rdma.RC, rdma.UC, rdma.UD} {
		log := new(journal)
		ours, theirs := pair(transport)
		l := listen(t, Config{})
		server := serve(t, l, end(log, "server", ours))
		client, err := Dial(t.Context(), l.Addr().String(), end(log, "client", theirs), Config{})
		testenv.Must(t, err)
		got := <-server
		if got.err != nil {
			t.Fatal(got.err)
		}
		log.add("accepted")
		want := []string{"server RTR", "server RTS", "client RTR", "client RTS", "accepted"}
		if !slices.Equal(log.lines, want) {
			t.Errorf("%v: %q, want %q", transport, log.lines, want)
		}
		if client.Remote().Parameters != ours || got.conn.Remote().Parameters != theirs || string(got.conn.Remote().Hello) != "client" {
			t.Errorf("%v: client heard %+v, server %+v", transport, client.Remote(), got.conn.Remote())
		}
		if client.Path() != (Path{rdma.MTU1024, 4, 2}) || got.conn.Path() != (Path{rdma.MTU1024, 2, 4}) {
			t.Errorf("%v: paths %+v and %+v", transport, client.Path(), got.conn.Path())
		}
		if p := client.Peer(); !p.Plain || !strings.Contains(p.String(), "not encrypted") {
			t.Errorf("plain TCP is called %v", p)
		}
		if l.Connected() != 1 {
			t.Errorf("%d connected", l.Connected())
		}
		talk(t, client, got.conn)
	}
}

// talk exchanges messages in both directions and closes in good order.
func talk(t *testing.T, a, b *Conn) {
	t.Helper()
	for _, c := range [][2]*Conn{{a, b}, {b, a}} {
		testenv.Check(t, c[0].Send([]byte("hello")))
		if text, err := c[1].Receive(); err != nil || string(text) != "hello" {
			t.Errorf("%q, %v", text, err)
		}
	}
	if err := a.Send(make([]byte, MaxHello+1)); err == nil {
		t.Error("a message that is too long was sent")
	}
	testenv.Check(t, errors.Join(a.Close(), a.Close()))
	if _, err := b.Receive(); err != io.EOF {
		t.Errorf("after goodbye: %v", err)
	}
	testenv.Check(t, b.Close())
}

// TestServerWaitsForReady: Accept does not return until the client says that it is ready.
func TestServerWaitsForReady(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	server := serve(t, l, end(new(journal), "server", ours))
	s := raw(t, l)
	leading, lead := make(chan bool), make(chan bool)
	asked := make(chan error, 1)
	go func() {
		_, err := s.ask(&Offer{Parameters: theirs}, func(Parameters) error { close(leading); <-lead; return nil })
		asked <- err
	}()
	<-leading
	select {
	case r := <-server:
		t.Errorf("accepted too early: %v", r.err)
	case <-time.After(50 * time.Millisecond):
	}
	close(lead)
	testenv.Check(t, errors.Join(<-asked, (<-server).err))
}

// raw connects a client session whose messages the test writes itself.
func raw(t *testing.T, l *Listener) *session {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	testenv.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return newSession(t.Context(), conn)
}

func TestRefuse(t *testing.T) {
	_, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			err = errors.Join(r.Refuse("there is no room \x1b[2J for "+string(r.Remote().Hello)), r.Refuse("again"))
			if !errors.Is(err, errAnswered) {
				t.Error(err)
			}
		}
	}()
	_, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "you", theirs), Config{})
	wantReason(t, err, ReasonRefused, "the peer refused: there is no room [2J for you")
	waitFor(t, l, ReasonRefused, 1)
}

func TestTransportsDiffer(t *testing.T) {
	ours, _ := pair(rdma.UC)
	_, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	server := serve(t, l, end(new(journal), "server", ours))
	_, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
	wantReason(t, err, ReasonRefused, "one side has a UC queue pair and the other a RC one")
	wantReason(t, (<-server).err, ReasonRefused, "compare the offers")
}

// TestDeviceRefuses: if one side's device refuses the agreed values, the other side gets a refusal.
func TestDeviceRefuses(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	for _, broken := range []string{"server", "client"} {
		log := new(journal)
		a, b := end(log, "server", ours), end(log, "client", theirs)
		mine := map[string]End{"server": a, "client": b}[broken].Queue.(*recorder)
		mine.fails = errors.New("no route to the GID")
		l := listen(t, Config{})
		server := serve(t, l, a)
		_, clientErr := Dial(t.Context(), l.Addr().String(), b, Config{})
		serverErr := (<-server).err
		local, peer := serverErr, clientErr
		if broken == "client" {
			local, peer = clientErr, serverErr
		}
		wantReason(t, local, ReasonQueuePair, "to RTR: no route to the GID")
		wantReason(t, peer, ReasonRefused, "the peer refused: queue_pair")
		if !errors.Is(local, mine.fails) {
			t.Errorf("%v does not wrap the device's error", local)
		}
	}
}

func TestOwnOfferIsChecked(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	bad := end(new(journal), "bad", ours)
	bad.Grants = []Grant{{Name: "no rights", Length: 1}}
	l := listen(t, Config{})
	if _, err := Dial(t.Context(), l.Addr().String(), bad, Config{}); err == nil || !strings.Contains(err.Error(), "our own offer") {
		t.Error(err)
	}
	server := serve(t, l, bad)
	_, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
	wantReason(t, err, ReasonRefused, "the peer refused")
	wantReason(t, (<-server).err, ReasonRefused, "our own offer")
}

func TestGrantByName(t *testing.T) {
	o := sample()
	if g, err := o.Grant("data"); err != nil || g.RKey != 0x1393 {
		t.Errorf("%+v, %v", g, err)
	}
	if _, err := o.Grant("date"); err == nil || !strings.Contains(err.Error(), "it grants [data]") {
		t.Error(err)
	}
}
