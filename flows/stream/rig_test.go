package stream

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is two machines, as it were: network namespaces joined by a veth pair, each with a region and a device.
type rig struct {
	testing.TB
	near, far *side // of senders, of receivers
}

// writing is the rig for a part of its test in which messages are written.
func (g *rig) writing(t testing.TB) *rig {
	g = g.with(t)
	g.far.writes = true
	return g
}

// side is one machine.
type side struct {
	testing.TB
	ns     machine
	region *umem.Region
	at     *Endpoint
	writes bool // receivers grant memory to be written
}

// newRig makes both machines. At the end of the test nothing is left of them, and every frame is in its pool.
func newRig(t testing.TB) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	g := &rig{TB: t}
	for at, e := range map[**side]*testenv.End{&g.near: &pair.A, &g.far: &pair.B} {
		*at = newSide(t, machine{e.Namespace, e.IP}, func(r *umem.Region) (rdma.Device, error) {
			p, err := roce.NewProvider(roce.Config{Region: r, Receive: 1024, Send: 256})
			if err != nil {
				return nil, err
			}
			return p.Open(e.Ifname)
		})
	}
	return g
}

// machine is where a side is: a namespace, or this machine, and the address there.
type machine struct {
	in *testenv.Namespace // nil: here
	IP netip.Addr
}

// Do is testenv.Namespace's.
func (m machine) Do(t testing.TB, f func()) {
	t.Helper()
	if m.in == nil {
		f()
		return
	}
	m.in.Do(t, f)
}

// with is the rig for a part of its test.
func (g *rig) with(t testing.TB) *rig {
	near, far := *g.near, *g.far
	near.TB, far.TB = t, t
	return &rig{TB: t, near: &near, far: &far}
}

// newSide opens a region, and a device there.
func newSide(t testing.TB, m machine, open func(*umem.Region) (rdma.Device, error)) *side {
	t.Helper()
	s := &side{TB: t, ns: m}
	var err error
	s.region, err = umem.Open(umem.Config{Size: 32 << 20, Pages: umem.Ordinary, ExtentSize: 64 << 10, Extents: 16})
	s.must(err)
	t.Cleanup(s.closeRegion)
	m.Do(t, func() {
		d, err := open(s.region)
		s.must(err)
		t.Cleanup(func() { s.must(d.Close()) })
		s.at, err = OpenEndpoint(d, s.region)
		s.must(err)
		t.Cleanup(func() { s.must(s.at.Close()) })
	})
	return s
}

func (s *side) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// closeRegion finds all frames in the pool.
func (s *side) closeRegion() {
	s.Helper()
	count, err := s.region.Audit()
	if err != nil || count.Of(umem.OwnerPool) != s.region.Frames() {
		s.Errorf("the pool has %d of %d frames in the end: %v, %v", count.Of(umem.OwnerPool), s.region.Frames(), count, err)
	}
	s.must(s.region.Close())
}

// loop is a worker: a thread that does rounds, and between them what it is asked to.
type loop struct {
	*side
	hands    *umem.Holder
	commands chan func()
	rounds   []func() (moved bool) // the thread's
	end      chan struct{}
	done     chan struct{}
}

// newLoop starts a worker with hands of its own. It ends with the test, with no frames left in its hands; end ends it
// before.
func (s *side) newLoop(name string) *loop {
	s.Helper()
	l := &loop{side: s, commands: make(chan func()), end: make(chan struct{}), done: make(chan struct{})}
	book := s.region.NewBook(name)
	var err error
	l.hands, err = book.NewHolder(umem.OwnerWorker, name)
	s.must(err)
	go l.run()
	s.Cleanup(func() {
		s.Helper()
		l.stop()
		s.must(book.Close())
	})
	return l
}

func (l *loop) run() {
	defer close(l.done)
	runtime.LockOSThread() // and never unlocked
	for {
		select {
		case <-l.end:
			return
		case f := <-l.commands:
			f()
		default:
		}
		moved := false
		for _, round := range l.rounds {
			moved = round() || moved
		}
		l.hands.Book().Publish()
		if !moved {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

func (l *loop) stop() {
	select {
	case <-l.end:
	default:
		close(l.end)
	}
	<-l.done
}

var errLoopEnded = errors.New("the loop has ended")

// do is the worker's Doer.
func (l *loop) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case l.commands <- func() { result <- f() }:
		return <-result
	case <-l.done:
		return errLoopEnded
	}
}

// run has f done on the worker's thread.
func (l *loop) on(f func()) {
	l.Helper()
	l.must(l.do(func() error { f(); return nil }))
}

// each has round called in every round from now on. It reports whether something moved.
func (l *loop) each(round func() bool) { l.on(func() { l.rounds = append(l.rounds, round) }) }

// take takes frames of the pool into the worker's hands.
func (l *loop) take(n int) []umem.Frame {
	l.Helper()
	fs := make([]umem.Frame, n)
	l.on(func() { fs = fs[:l.hands.Take(fs)] })
	if len(fs) < n {
		l.Fatalf("the pool has %d of %d frames", len(fs), n)
	}
	return fs
}
