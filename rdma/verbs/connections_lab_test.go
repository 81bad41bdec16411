//go:build verbs && cgo

package verbs

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/umem"
)

// TestConnections: a thousand times, ports connect over TCP, pass a message and close. They leave
// no descriptor, object of the device or frame behind.
func TestConnections(t *testing.T) {
	labenv.Guest(t)
	p := newPortBench(t)
	l, err := connect.Listen(t.Context(), "127.0.0.1:0", connect.Config{})
	testenv.Must(t, err)
	defer l.Close()
	n := 1000
	if testing.Short() {
		n = 10
	}
	for i := range n {
		p.connection(l)
		if t.Failed() {
			t.Fatalf("connection %d of %d", i+1, n)
		}
	}
	if got := l.Connected(); got != uint64(n) {
		t.Errorf("%d were connected, not %d", got, n)
	}
}

// connection makes two connected ports. The second one closes first, in the middle of receiving.
func (p *portBench) connection(l *connect.Listener) {
	p.t.Helper()
	s := portShape{transport: rdma.RC}
	ca, cb := p.config("a", s), p.config("b", s)
	x, y := p.connecting(ca), p.connecting(cb)
	accepted := make(chan error, 1)
	var there *connect.Conn
	go func() {
		r, err := l.Accept(p.t.Context())
		if err == nil {
			there, err = r.Accept(y)
		}
		accepted <- err
	}()
	here, err := connect.Dial(p.t.Context(), l.Addr().String(), x, connect.Config{})
	testenv.Must(p.t, errors.Join(err, <-accepted))
	a, err1 := msg.Open(ca)
	b, err2 := msg.Open(cb)
	testenv.Must(p.t, errors.Join(err1, err2))
	p.supply(b, 4)
	p.mustSend(a, p.frames(1, 100))
	got := take(p.t, "a message", 1, b, b.Recv)
	p.wantBack(a, "sent", 1, nil)
	p.worker.Give(got)
	testenv.Check(p.t, errors.Join(b.Close(), there.Close(), a.Close(), here.Close()))
	if n := p.worker.Book().Region().Snapshot().Of(umem.OwnerRDMA); n != 0 {
		p.t.Errorf("%d frames are with ports that are closed", n)
	}
}

// connecting returns the queue pair for a port, in INIT.
func (p *portBench) connecting(c msg.Config) connect.End {
	p.t.Helper()
	e := connect.End{Queue: c.QueuePairs[0].QueuePair, Settings: connect.Defaults()}
	e.Settings.GID = p.gid
	var err error
	if e.Parameters, err = connect.Prepare(p.dev, e.Queue, e.Settings); err != nil {
		p.t.Fatal(err)
	}
	return e
}
