package cm

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is two devices with their managers, each in its own network namespace.
type rig struct {
	*testing.T
	sides [2]*side
}

// side is a device with its manager.
type side struct {
	*rig
	ip      netip.Addr
	region  *umem.Region
	dev     *roce.Device
	domain  rdma.ProtectionDomain
	memory  rdma.MemoryRegion
	book    *umem.Book
	hands   *umem.Holder
	base    uint64 // of memory for the test
	manager *Manager
}

const port = 7174

func newRig(t *testing.T, ipv6 bool, c Config) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	r := &rig{T: t}
	pair := testenv.NewPair(t, testenv.PairOptions{IPv6: ipv6})
	for i, e := range []*testenv.End{&pair.A, &pair.B} {
		s := &side{rig: r, ip: e.IP}
		if ipv6 {
			s.ip = e.IP6
		}
		s.open(e, c)
		r.sides[i] = s
	}
	return r
}

func (s *side) open(e *testenv.End, c Config) {
	s.region = testenv.Opened(s.rig, func() (*umem.Region, error) {
		return umem.Open(umem.Config{Size: 16 << 20, Pages: umem.Ordinary, ExtentSize: 1 << 20, Extents: 1})
	})
	s.book = s.region.NewBook("test")
	var err error
	s.hands, err = s.book.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(s, err)
	var extent [1]umem.Frame
	s.hands.TakeExtents(extent[:])
	s.base = extent[0].Addr
	s.Cleanup(func() { s.rest(extent[:]) })
	p, err := roce.NewProvider(roce.Config{Region: s.region, Receive: 512, Send: 128})
	testenv.Must(s, err)
	e.Do(s, func() {
		s.dev = testenv.Opened(s.rig, func() (*roce.Device, error) {
			d, err := p.Open(e.Ifname)
			if err != nil {
				return nil, err
			}
			return d.(*roce.Device), nil
		})
	})
	s.domain = testenv.Opened(s.rig, s.dev.NewProtectionDomain)
	s.memory = testenv.Opened(s.rig, func() (rdma.MemoryRegion, error) { return s.domain.Register(s.region, rdma.EveryAccess) })
	s.manager = testenv.Opened(s.rig, func() (*Manager, error) { return Open(s.dev, c) })
}

// rest checks that all frames are in the pool at the end.
func (s *side) rest(extent []umem.Frame) {
	s.hands.Give(extent)
	testenv.Check(s, s.book.Close())
	if count, err := s.region.Audit(); err != nil || count.Of(umem.OwnerPool) != s.region.Frames() {
		s.Errorf("not all frames are in the pool in the end: %v, %v", count, err)
	}
}

// end is a queue pair with a completion queue.
type end struct {
	*side
	qp rdma.QueuePair
	cq rdma.CompletionQueue
}

func (s *side) newEnd() *end {
	s.Helper()
	e := &end{side: s}
	e.cq = testenv.Opened(s.rig, func() (rdma.CompletionQueue, error) {
		return s.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 64, Events: true})
	})
	e.qp = testenv.Opened(s.rig, func() (rdma.QueuePair, error) {
		return s.domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: e.cq, ReceiveCQ: e.cq, SendDepth: 16, RecvDepth: 16, InlineBytes: 64})
	})
	return e
}

func (e *end) sge(at uint64) rdma.SGE {
	return rdma.SGE{Addr: e.base + at, Length: 64, LKey: e.memory.LKey()}
}

func (e *end) receive(at uint64) {
	e.Helper()
	if n, err := e.qp.PostReceive([]rdma.ReceiveRequest{{ID: at, SGEs: 1}}, []rdma.SGE{e.sge(at)}); n != 1 {
		e.Fatal(err)
	}
}

func (e *end) send(r rdma.SendRequest, at uint64) {
	e.Helper()
	r.SGEs, r.Flags = 1, rdma.Signaled
	if n, err := e.qp.PostSend([]rdma.SendRequest{r}, []rdma.SGE{e.sge(at)}); n != 1 {
		e.Fatal(err)
	}
}

// want waits for a completion.
func (e *end) want(status rdma.Status) {
	e.Helper()
	var got [1]rdma.WorkCompletion
	testenv.Wait(e, 20*time.Second, "a completion", func() bool {
		n, err := e.cq.Poll(got[:])
		testenv.Must(e, err)
		return n == 1
	})
	if got[0].Status != status {
		e.Fatalf("completion with %v, not %v\n%s", got[0].Status, status, e.show())
	}
}

// show lists the device's counters that are not zero.
func (s *side) show() (text string) {
	for _, c := range s.dev.Counters() {
		if c.Value != 0 {
			text += fmt.Sprintf(" %s=%d", c.Name, c.Value)
		}
	}
	return text
}

// counted returns one counter.
func (s *side) counted(name string) uint64 {
	for _, c := range s.dev.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	s.Fatalf("nothing is counted as %s", name)
	return 0
}

// within returns a context for one step.
func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Within(d))
	r.Cleanup(cancel)
	return ctx
}

func (s *side) listen(backlog int) cm.Listener {
	s.Helper()
	return testenv.Opened(s.rig, func() (cm.Listener, error) { return s.manager.Listen(netip.AddrPortFrom(s.ip, port), backlog) })
}

// accepted is the outcome of a request.
type accepted struct {
	conn cm.Conn
	err  error
}

// answer accepts the next request of a listener and calls f with it.
func (s *side) answer(l cm.Listener, f func(cm.Request) (cm.Conn, error)) <-chan accepted {
	done, ctx := make(chan accepted, 1), s.within(30*time.Second)
	go func() {
		request, err := l.Accept(ctx)
		a := accepted{err: err}
		if err == nil {
			a.conn, a.err = f(request)
		}
		done <- a
	}()
	return done
}

// accept returns a function that accepts a request with this end.
func (e *end) accept(private string) func(cm.Request) (cm.Conn, error) {
	ctx := e.within(30 * time.Second)
	return func(r cm.Request) (cm.Conn, error) {
		if err := r.Prepare(e.qp, rdma.Remote); err != nil {
			return nil, err
		}
		e.receive(0)
		ours := cm.Defaults(e.qp)
		ours.Private = []byte(private)
		return r.Accept(ctx, ours)
	}
}

// connect is the active side's counterpart of accept.
func (e *end) connect(to netip.Addr, private string) (cm.Conn, error) {
	e.Helper()
	route, err := e.manager.Resolve(e.within(30*time.Second), cm.Path{To: netip.AddrPortFrom(to, port)})
	if err != nil {
		return nil, err
	}
	defer route.Close()
	if err := route.Prepare(e.qp, rdma.Remote); err != nil {
		return nil, err
	}
	e.receive(4096)
	ours := cm.Defaults(e.qp)
	ours.Private = []byte(private)
	return route.Connect(e.within(30*time.Second), ours)
}

// over waits until a connection has ended.
func over(t testing.TB, c cm.Conn) error {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(testenv.Within(20 * time.Second)):
		t.Fatal("the connection is not over after 20 s")
	}
	return c.Err()
}
