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

// rig simulates two machines: network namespaces joined by a veth pair, each with a region and a
// device.
type rig struct {
	testing.TB
	near, far *side // of senders and of receivers
}

// writing returns the rig for a part of its test in which senders write messages.
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
	writes bool         // receivers grant memory that peers write
	more   []*Endpoint  // at the interfaces of other switches
	moreIP []netip.Addr // of these interfaces
}

// newRig makes both machines. The end of the test removes them, and checks that every frame is in
// its pool.
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

// machine is the place of a side, a namespace or this machine, and its address.
type machine struct {
	in *testenv.Namespace // nil: this machine
	IP netip.Addr
}

// Do runs f in the namespace, see testenv.Namespace.
func (m machine) Do(t testing.TB, f func()) {
	t.Helper()
	if m.in == nil {
		f()
		return
	}
	m.in.Do(t, f)
}

// with returns the rig for a part of its test.
func (g *rig) with(t testing.TB) *rig {
	near, far := *g.near, *g.far
	near.TB, far.TB = t, t
	return &rig{TB: t, near: &near, far: &far}
}

// newSide opens a region and a device on a machine.
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

// closeRegion checks that all frames are in the pool, and closes the region.
func (s *side) closeRegion() {
	s.Helper()
	count, err := s.region.Audit()
	if err != nil || count.Of(umem.OwnerPool) != s.region.Frames() {
		s.Errorf("the pool has %d of %d frames in the end: %v, %v", count.Of(umem.OwnerPool), s.region.Frames(), count, err)
	}
	s.must(s.region.Close())
}

// loop is a worker: a thread that runs rounds and, between them, the functions that a test passes
// to it.
type loop struct {
	*side
	hands    *umem.Holder
	commands chan func()
	rounds   []func() (moved bool) // used by the thread
	end      chan struct{}
	done     chan struct{}
}

// newLoop starts a worker with its own holder. The worker ends with the test, or earlier by end. No
// frames may be left in its holder then.
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

// on runs f on the worker's thread.
func (l *loop) on(f func()) {
	l.Helper()
	l.must(l.do(func() error { f(); return nil }))
}

// each makes the worker call round in every round from now on. round reports whether it did some
// work.
func (l *loop) each(round func() bool) { l.on(func() { l.rounds = append(l.rounds, round) }) }

// take takes frames from the pool into the worker's holder.
func (l *loop) take(n int) []umem.Frame {
	l.Helper()
	fs := make([]umem.Frame, n)
	l.on(func() { fs = fs[:l.hands.Take(fs)] })
	if len(fs) < n {
		l.Fatalf("the pool has %d of %d frames", len(fs), n)
	}
	return fs
}
