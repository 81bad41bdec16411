//go:build verbs && cgo

package cm

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestRefusals: each failed connection has an error that says why, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	labenv.Guest(t)
	r := newRig(t)
	for _, c := range []struct {
		name string
		run  func(*rig)
	}{{"nobody listens", nobodyListens}, {"rejected", rejected}, {"not answered", notAnswered}, {"listener closed", listenerClosed},
		{"backlog", backlogFull}, {"no such address", noSuchAddress}, {"no device", noDevice}, {"address in use", inUse},
		{"wrong queue pairs", wrongQueuePairs}, {"given up by the peer", givenUp}, {"cancelled", cancelled}} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "nobody listens" && c.name != "rejected" {
				long(t, "others are refused")
			}
			on := *r
			on.t = t
			c.run(&on)
		})
	}
}

// refused checks the error of a connection that failed.
func (r *rig) refused(err error, kind error, reason Reason, part string) *Error {
	r.t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || e.Reason != reason || !strings.Contains(err.Error(), part) {
		r.t.Fatalf("the error is %v, want one of %v with %v that says %q", err, kind, reason, part)
	}
	return e
}

func nobodyListens(r *rig) {
	_, err := r.side().connect("")
	r.refused(err, ErrRejected, ReasonNoListener, "check that a program listens")
}

func rejected(r *rig) {
	why := bytes.Repeat([]byte{0xff, 0, 'x'}, MostToReject/3)
	answer := r.answer(r.listen(), func(q Request) (Conn, error) { return nil, q.Reject(why) })
	_, err := r.side().connect("please")
	e := r.refused(err, ErrRejected, ReasonConsumer, "rejected by the peer's program")
	if !bytes.HasPrefix(e.Private, why) {
		r.t.Errorf("the peer says %q", e.Private)
	}
	if a := <-answer; a.err != nil {
		r.t.Error(a.err)
	} else if err := errors.Join(a.request.Close(), a.request.Close()); err != nil {
		r.t.Error(err)
	}
}

// notAnswered: if no program answers a request, the context bounds the wait. Closing the listener
// refuses the request.
func notAnswered(r *rig) {
	l := r.listen()
	x := r.side()
	route := testenv.Opened(r.t, r.route)
	testenv.Must(r.t, route.Prepare(x.qp, 0))
	begin := time.Now()
	if _, err := route.Connect(r.within(100*time.Millisecond), Defaults(x.qp)); !errors.Is(err, context.DeadlineExceeded) {
		r.t.Error(err)
	}
	if d := time.Since(begin); d > testenv.Within(5*time.Second) {
		r.t.Errorf("it took %v", d)
	}
	testenv.Check(r.t, l.Close())
}

// listenerClosed: closing the listener refuses waiting requests, and Accept fails.
func listenerClosed(r *rig) {
	l := r.listen()
	x := r.side()
	failed := make(chan error, 1)
	go func() {
		_, err := x.connect("")
		failed <- err
	}()
	testenv.Wait(r.t, 10*time.Second, "the request", func() bool { return len(l.(*listener).identifier.requests) == 1 })
	testenv.Check(r.t, errors.Join(l.Close(), l.Close()))
	if err := <-failed; !errors.Is(err, ErrRejected) {
		r.t.Error(err)
	}
	if _, err := l.Accept(r.within(time.Second)); !errors.Is(err, ErrClosed) {
		r.t.Error(err)
	}
}

// backlogFull: a listener keeps no more waiting requests than its backlog.
func backlogFull(r *rig) {
	l := testenv.Opened(r.t, func() (Listener, error) { return r.channel.Listen(netip.AddrPortFrom(here, port), 2) })
	errs := make(chan error, 6)
	var routes []Route
	for range cap(errs) {
		x, route := r.side(), testenv.Opened(r.t, r.route)
		testenv.Must(r.t, route.Prepare(x.qp, 0))
		routes = append(routes, route)
		ctx := r.within(2 * time.Second)
		go func() {
			_, err := route.Connect(ctx, Defaults(x.qp))
			errs <- err
		}()
	}
	if err := <-errs; !errors.Is(err, ErrRejected) {
		r.t.Error(err)
	}
	if n := len(l.(*listener).identifier.requests); n > 2 {
		r.t.Errorf("%d requests wait", n)
	}
	for _, route := range routes {
		testenv.Check(r.t, route.Close())
	}
	for range cap(errs) - 1 {
		if err := <-errs; err == nil {
			r.t.Error("one is connected")
		}
	}
}

func noSuchAddress(r *rig) {
	ctx := r.within(300 * time.Millisecond)
	_, err := r.channel.Resolve(ctx, Path{To: netip.AddrPortFrom(elsewhere, port)})
	if !errors.Is(err, ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) {
		r.t.Error(err)
	}
}

// noDevice: no device has the local address, or none leads to the remote one.
func noDevice(r *rig) {
	for _, p := range []Path{{To: netip.MustParseAddrPort("127.0.0.1:1"), From: netip.MustParseAddr("127.0.0.1")},
		{To: netip.AddrPortFrom(here, port), From: elsewhere}, {To: netip.MustParseAddrPort("[fe80::1%no-such-card]:1")}} {
		if route, err := r.channel.Resolve(r.within(2*time.Second), p); err == nil {
			r.t.Errorf("%+v leads over %v", p, route.Address())
		} else {
			r.t.Log(err)
		}
	}
	_, err := r.channel.Listen(netip.AddrPortFrom(elsewhere, port), 0)
	if !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
		r.t.Error(err)
	}
}

func inUse(r *rig) {
	r.listen()
	_, err := r.channel.Listen(netip.AddrPortFrom(here, port), 0)
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "another program listens") {
		r.t.Error(err)
	}
}

// wrongQueuePairs: the package refuses unsuitable queue pairs before it calls the kernel.
func wrongQueuePairs(r *rig) {
	x, route := r.side(), testenv.Opened(r.t, r.route)
	c := x.config()
	c.Transport = rdma.UC
	uc := testenv.Opened(r.t, func() (rdma.QueuePair, error) { return r.domain.NewQueuePair(c) })
	for _, change := range []func(*End){func(e *End) { e.Queue = uc }, func(e *End) { e.Queue = nil }, func(e *End) { e.Retries = 8 },
		func(e *End) { e.Timeout = 32 }, func(e *End) { e.Private = make([]byte, 256) }, func(e *End) { e.Private = make([]byte, MostToConnect+1) }} {
		e := Defaults(x.qp)
		change(&e)
		if _, err := route.Connect(r.within(time.Second), e); err == nil {
			r.t.Errorf("it takes %+v", e)
		}
	}
}

// givenUp: a request whose sender is gone cannot be accepted.
func givenUp(r *rig) {
	l, x, y := r.listen(), r.side(), r.side()
	route := testenv.Opened(r.t, r.route)
	testenv.Must(r.t, route.Prepare(x.qp, 0))
	ctx, cancel := context.WithCancel(r.within(20 * time.Second))
	go func() { _, _ = route.Connect(ctx, Defaults(x.qp)) }()
	request, err := l.Accept(r.within(10 * time.Second))
	testenv.Must(r.t, err)
	cancel()
	testenv.Must(r.t, route.Close())
	time.Sleep(100 * time.Millisecond)
	if _, err := y.accept("")(request); err == nil {
		r.t.Error("it is accepted")
	} else {
		r.t.Log(err)
	}
	testenv.Check(r.t, request.Close())
}

// cancelled: no call waits longer than its context.
func cancelled(r *rig) {
	l := r.listen()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.Canceled) {
		r.t.Error(err)
	}
	if _, err := r.channel.Resolve(ctx, Path{To: netip.AddrPortFrom(elsewhere, port)}); !errors.Is(err, context.Canceled) {
		r.t.Error(err)
	}
}

// TestChannelClosed: closing a channel ends everything that was made from it.
func TestChannelClosed(t *testing.T) {
	labenv.Guest(t)
	long(t, "a connection is closed in TestConnect")
	r := newRig(t)
	x, y := r.side(), r.side()
	l := r.listen()
	other, err := Open()
	testenv.Must(t, err)
	answer := r.answer(l, y.accept(""))
	mine := r.channel
	r.channel = other
	x.rig.channel = other
	a, err := x.connect("")
	r.channel = mine
	b := <-answer
	if err = errors.Join(err, b.err); err != nil {
		t.Fatal(err)
	}
	testenv.Check(t, errors.Join(other.Close(), other.Close()))
	if err := over(t, a); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := over(t, b.conn); !errors.Is(err, ErrDisconnected) {
		t.Error(err)
	}
	closed(t, a, b.conn)
	if _, err := other.Listen(netip.AddrPortFrom(here, port+1), 0); err == nil {
		t.Error("a channel that is closed listens")
	}
}
