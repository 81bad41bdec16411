//go:build verbs && cgo

package cm

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/verbs"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is a Soft-RoCE device for both sides, with a channel.
type rig struct {
	t       *testing.T
	device  rdma.Device
	domain  rdma.ProtectionDomain
	region  *umem.Region
	memory  rdma.MemoryRegion
	channel *Channel
	at      netip.Addr // where the listener listens
}

// here and here6 are addresses of the device, and elsewhere is an address on its link that no host
// has.
var here, here6, elsewhere = netip.MustParseAddr("10.79.0.1"), netip.MustParseAddr("fd79::1"), netip.MustParseAddr("10.79.0.9")

const port = 7471

func newRig(t *testing.T) *rig {
	t.Helper()
	testenv.Leaks(t)
	r := &rig{t: t, at: here}
	name := labenv.SoftRoCE(t, "virtio0", here.String()+"/24", here6.String()+"/64")
	t.Cleanup(func() { labenv.RDMAAtRest(t, name) })
	r.device = testenv.Opened(t, func() (rdma.Device, error) { return verbs.Provider{}.Open(name) })
	r.domain = testenv.Opened(t, r.device.NewProtectionDomain)
	r.region = testenv.Opened(t, func() (*umem.Region, error) { return umem.Open(umem.Config{Size: 2 << 20}) })
	r.memory = testenv.Opened(t, func() (rdma.MemoryRegion, error) {
		return r.domain.Register(r.region, rdma.LocalWrite|rdma.Remote)
	})
	r.channel = testenv.Opened(t, Open)
	t.Cleanup(func() {
		if n := r.channel.Open(); n != 0 {
			t.Errorf("%d identifiers are open", n)
		}
	})
	return r
}

// long skips a test in the short form if another test there covers most of it. make lab runs it.
func long(t *testing.T, shown string) {
	t.Helper()
	testenv.Long(t, shown+"; make lab runs it")
}

// side is one queue pair with its completions.
type side struct {
	*rig
	qp rdma.QueuePair
	cq rdma.CompletionQueue
}

func (r *rig) side() *side {
	r.t.Helper()
	s := &side{rig: r}
	s.cq = testenv.Opened(r.t, func() (rdma.CompletionQueue, error) {
		return r.device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 64})
	})
	var err error
	if s.qp, err = r.domain.NewQueuePair(s.config()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		testenv.Check(r.t, s.qp.Close())
	})
	return s
}

func (s *side) config() rdma.QueuePairConfig {
	return rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: s.cq, ReceiveCQ: s.cq, SendDepth: 16, RecvDepth: 16, InlineBytes: 64}
}

func (s *side) sge(addr uint64, n uint32) rdma.SGE {
	return rdma.SGE{Addr: s.memory.Addr() + addr, Length: n, LKey: s.memory.LKey()}
}

func (s *side) receive(addr uint64) {
	s.t.Helper()
	if n, err := s.qp.PostReceive([]rdma.ReceiveRequest{{ID: addr, SGEs: 1}}, []rdma.SGE{s.sge(addr, 64)}); n != 1 {
		s.t.Fatal(err)
	}
}

func (s *side) send(r rdma.SendRequest, addr uint64) {
	s.t.Helper()
	r.SGEs, r.Flags = 1, rdma.Signaled
	if n, err := s.qp.PostSend([]rdma.SendRequest{r}, []rdma.SGE{s.sge(addr, 64)}); n != 1 {
		s.t.Fatal(err)
	}
}

// want waits for a completion.
func (s *side) want(status rdma.Status) rdma.WorkCompletion {
	s.t.Helper()
	var got [1]rdma.WorkCompletion
	testenv.Wait(s.t, 10*time.Second, "a completion", func() bool {
		n, err := s.cq.Poll(got[:])
		testenv.Must(s.t, err)
		return n == 1
	})
	if got[0].Status != status {
		s.t.Fatalf("completion with %v, not %v", got[0].Status, status)
	}
	return got[0]
}

// within returns a context for one step.
func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Within(d))
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) route() (Route, error) {
	return r.channel.Resolve(r.within(10*time.Second), Path{To: netip.AddrPortFrom(r.at, port)})
}

func (r *rig) listen() Listener {
	r.t.Helper()
	return testenv.Opened(r.t, func() (Listener, error) { return r.channel.Listen(netip.AddrPortFrom(r.at, port), 0) })
}

// accepted is the outcome of a request.
type accepted struct {
	conn    Conn
	request Request
	err     error
}

// answer accepts the next request of a listener and calls f with it.
func (r *rig) answer(l Listener, f func(Request) (Conn, error)) <-chan accepted {
	done, ctx := make(chan accepted, 1), r.within(20*time.Second)
	go func() {
		request, err := l.Accept(ctx)
		a := accepted{request: request, err: err}
		if err == nil {
			a.conn, a.err = f(request)
		}
		done <- a
	}()
	return done
}

// all is the access of a peer with every right.
const all = rdma.RemoteRead | rdma.RemoteWrite | rdma.RemoteAtomic

// accept returns a function that accepts a request: it prepares the side, posts a receive, and
// connects.
func (s *side) accept(private string) func(Request) (Conn, error) {
	ctx := s.within(20 * time.Second)
	return func(r Request) (Conn, error) {
		if err := r.Prepare(s.qp, all); err != nil {
			return nil, err
		}
		s.receive(0)
		e := Defaults(s.qp)
		e.Private = []byte(private)
		return r.Accept(ctx, e)
	}
}

// connect is the active side's counterpart of accept.
func (s *side) connect(private string) (Conn, error) {
	s.t.Helper()
	route, err := s.route()
	if err != nil {
		return nil, err
	}
	defer func() {
		testenv.Check(s.t, route.Close())
	}()
	if err := route.Prepare(s.qp, all); err != nil {
		return nil, err
	}
	s.receive(4096)
	e := Defaults(s.qp)
	e.Private = []byte(private)
	return route.Connect(s.within(20*time.Second), e)
}

// pair connects two sides.
func (r *rig) pair(x, y *side) (Conn, Conn) {
	r.t.Helper()
	l := r.listen()
	answer := r.answer(l, y.accept("welcome"))
	a, err := x.connect("hello")
	testenv.Must(r.t, err)
	b := <-answer
	if b.err != nil {
		r.t.Fatal(b.err)
	}
	testenv.Must(r.t, l.Close())
	r.t.Cleanup(func() { closed(r.t, a, b.conn) })
	return a, b.conn
}

// closed closes connections twice, which must work.
func closed(t *testing.T, all ...Conn) {
	t.Helper()
	for range 2 {
		for _, c := range all {
			testenv.Check(t, c.Close())
		}
	}
}

// over waits until a connection has ended.
func over(t *testing.T, c Conn) error {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(testenv.Within(10 * time.Second)):
		t.Fatal("the connection is not over after 10 s")
	}
	return c.Err()
}
