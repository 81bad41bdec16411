package cm

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
)

// TestRefusals: each failed connection has an error that says why, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	r := newRig(t, false, Config{Response: 14, Lifetime: 10})
	x, y := r.sides[0], r.sides[1]
	for _, c := range []struct {
		name string
		run  func(t *testing.T, x, y *side)
	}{{"nobody listens", nobodyListens}, {"rejected", rejectedByProgram}, {"backlog", backlogFull}, {"given up", givenUpByPeer}, {"listener closed", listenerClosed},
		{"in use", inUse}, {"no such address", noSuchAddress}, {"too much said", tooMuchSaid}, {"peer's device closed", vanished}} {
		t.Run(c.name, func(t *testing.T) {
			here, there := *x, *y
			on := *r
			on.T, here.rig, there.rig = t, &on, &on
			c.run(t, &here, &there)
		})
	}
	testenv.Wait(t, 10*time.Second, "everything to be over", func() bool { return x.manager.Open()+y.manager.Open() == 0 })
}

// refused checks the error of a connection that failed.
func refused(t *testing.T, err error, kind error, reason cm.Reason) *cm.Error {
	t.Helper()
	var e *cm.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || e.Reason != reason {
		t.Fatalf("the error is %v, want one of %v with %v", err, kind, reason)
	}
	return e
}

func nobodyListens(t *testing.T, x, y *side) {
	e := x.newEnd()
	_, err := e.connect(y.ip, "")
	refused(t, err, cm.ErrRejected, cm.ReasonNoListener)
	if s, err := e.qp.State(); s != rdma.Init || err != nil {
		t.Errorf("a queue pair that was rejected is in %v: %v", s, err)
	}
}

func rejectedByProgram(t *testing.T, x, y *side) {
	why := bytes.Repeat([]byte{0xff, 0, 'x'}, cm.MostToReject/3)
	l := y.listen(0)
	answer := y.answer(l, func(q cm.Request) (cm.Conn, error) { return nil, q.Reject(why) })
	_, err := x.newEnd().connect(y.ip, "please")
	if e := refused(t, err, cm.ErrRejected, cm.ReasonConsumer); !bytes.HasPrefix(e.Private, why) {
		t.Errorf("the peer says %q", e.Private)
	}
	if a := <-answer; a.err != nil {
		t.Error(a.err)
	}
}

func backlogFull(t *testing.T, x, y *side) {
	l := y.listen(1)
	first := make(chan error, 1)
	go func() {
		_, err := x.newEnd().connect(y.ip, "")
		first <- err
	}()
	testenv.Wait(t, 10*time.Second, "the request", func() bool { return len(l.(*listener).requests) == 1 })
	_, err := x.newEnd().connect(y.ip, "")
	refused(t, err, cm.ErrRejected, cm.ReasonNoResources)
	testenv.Check(t, l.Close())
	refused(t, <-first, cm.ErrRejected, cm.ReasonConsumer)
}

// givenUpByPeer: if the active side gives up before the answer, the listener does not return its
// request.
func givenUpByPeer(t *testing.T, x, y *side) {
	l, e := y.listen(0), x.newEnd()
	route, err := x.manager.Resolve(x.within(10*time.Second), cm.Path{To: netip.AddrPortFrom(y.ip, port)})
	testenv.Must(t, err)
	defer route.Close()
	testenv.Must(t, route.Prepare(e.qp, 0))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := route.Connect(ctx, cm.Defaults(e.qp)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	rejects := func() bool { return y.counted("cm_received_rej") > 0 }
	testenv.Wait(t, 10*time.Second, "the word that it is given up", rejects)
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request that was given up: %v", err)
	}
}

// listenerClosed: Accept fails when the listener is closed.
func listenerClosed(t *testing.T, _, y *side) {
	l := y.listen(0)
	time.AfterFunc(20*time.Millisecond, func() { _ = l.Close() })
	if _, err := l.Accept(y.within(10 * time.Second)); !errors.Is(err, cm.ErrClosed) {
		t.Error(err)
	}
}

func inUse(t *testing.T, _, y *side) {
	y.listen(0)
	for _, at := range []netip.Addr{y.ip, netip.IPv6Unspecified(), netip.IPv4Unspecified()} {
		if _, err := y.manager.Listen(netip.AddrPortFrom(at, port), 0); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%v: %v", at, err)
		}
	}
	l, err := y.manager.Listen(netip.AddrPortFrom(y.ip, 0), 0)
	if err != nil || l.Addr().Port() == 0 {
		t.Fatalf("any port is %v: %v", l, err)
	}
	_ = l.Close()
	if _, err := y.manager.Listen(netip.MustParseAddrPort("192.0.2.1:1"), 0); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Error(err)
	}
}

// noSuchAddress: an address without a route is unreachable. (For an address on the link that does
// not answer, the kernel takes three seconds.)
func noSuchAddress(t *testing.T, x, _ *side) {
	_, err := x.newEnd().connect(netip.MustParseAddr("192.0.2.1"), "")
	if e := refused(t, err, cm.ErrUnreachable, 0); e.Event != cm.AddressError {
		t.Error(e)
	}
	if _, err := x.newEnd().connect(netip.MustParseAddr("2001:db8::1"), ""); err == nil {
		t.Error("there is no IPv6")
	}
}

func tooMuchSaid(t *testing.T, x, y *side) {
	y.listen(0)
	if _, err := x.newEnd().connect(y.ip, string(make([]byte, cm.MostToConnect+1))); err == nil {
		t.Error("57 bytes were said")
	}
	testenv.Check(t, y.manager.machine.config.check())
}

// vanished: a connection to a manager that closed ends, and one to a peer that does not answer
// fails by timeout.
func vanished(t *testing.T, x, y *side) {
	l := y.listen(0)
	e, f := x.newEnd(), y.newEnd()
	answer := y.answer(l, f.accept(""))
	a, err := e.connect(y.ip, "")
	testenv.Must(t, err)
	b := <-answer
	if err := y.manager.Close(); err != nil { // the manager sends DREQs
		t.Error(err)
	}
	if err := over(t, a); !errors.Is(err, cm.ErrDisconnected) {
		t.Error(err)
	}
	if err := b.conn.Err(); !errors.Is(err, cm.ErrClosed) {
		t.Error(err)
	}
	testenv.Check(t, errors.Join(a.Close(), b.conn.Close(), l.Close()))
	_, err = x.newEnd().connect(y.ip, "") // no manager has queue pair 1 there
	if !errors.Is(err, cm.ErrUnreachable) || !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("who never answers: %v", err)
	}
	if _, err := y.manager.Listen(netip.AddrPortFrom(y.ip, 1), 0); !errors.Is(err, cm.ErrClosed) {
		t.Error(err)
	}
	if x.counted("cm_given_up") == 0 || x.counted("cm_resent") == 0 {
		t.Error(x.show())
	}
	var again *Manager
	again, err = Open(y.dev, Config{})
	testenv.Must(t, err)
	if y.counted("cm_established") == 0 {
		t.Error("a new manager has forgotten what the old one counted")
	}
	testenv.Check(t, again.Close())
}
