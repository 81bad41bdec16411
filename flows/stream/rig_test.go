package stream

import (
	"net/netip"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
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
	ns     rocetest.Machine
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
	near, far := rocetest.Pair(t)
	return &rig{TB: t, near: newSide(t, near), far: newSide(t, far)}
}

// with returns the rig for a part of its test.
func (g *rig) with(t testing.TB) *rig {
	near, far := *g.near, *g.far
	near.TB, far.TB = t, t
	return &rig{TB: t, near: &near, far: &far}
}

// newSide opens a region and a device on a machine.
func newSide(t testing.TB, m rocetest.Machine) *side {
	t.Helper()
	s := &side{TB: t, ns: m}
	region, d := m.Start(t, umem.Config{Size: 32 << 20, Pages: umem.Ordinary, ExtentSize: 64 << 10, Extents: 16})
	var err error
	s.region = region
	s.at, err = OpenEndpoint(d, region)
	s.must(err)
	t.Cleanup(func() { s.must(s.at.Close()) })
	return s
}

func (s *side) must(err error) { s.Helper(); testenv.Must(s, err) }

// loop is a worker: a thread that runs rounds and, between them, the functions that a test passes
// to it.
type loop struct {
	*side
	*rocetest.Loop
	hands  *umem.Holder
	rounds []func() (moved bool) // used by the thread
}

// newLoop starts a worker with its own holder. The worker ends with the test, or earlier by end. No
// frames may be left in its holder then.
func (s *side) newLoop(name string) *loop {
	s.Helper()
	l := &loop{side: s}
	book := s.region.NewBook(name)
	var err error
	l.hands, err = book.NewHolder(umem.OwnerWorker, name)
	s.must(err)
	l.Loop = rocetest.NewLoop(l.round, nil)
	s.Cleanup(func() {
		s.Helper()
		l.Stop()
		s.must(book.Close())
	})
	return l
}

func (l *loop) round() (moved bool) {
	for _, round := range l.rounds {
		moved = round() || moved
	}
	l.hands.Book().Publish()
	return moved
}

// do is the worker's Doer.
func (l *loop) do(f func() error) error { return l.Do(f) }

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
