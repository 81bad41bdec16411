package stream

import (
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// pathRig is a rig whose machines have two devices each, on two networks.
type pathRig struct {
	*rig
	ends [2][]*testenv.End // by switch: of senders, of receivers; nil: there are no switches
	// cut makes a network carry nothing, and returns a function that ends that.
	cut func(t *testing.T, number int) (mend func())
}

// newPathRig makes a rig whose machines are joined by two switches.
func newPathRig(t *testing.T) *pathRig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	o := testenv.PairOptions{MTU: 4200}
	g := &pathRig{rig: &rig{TB: t}}
	g.ends[0] = testenv.NewSwitch(t, 2, o)
	g.ends[1] = testenv.SecondSwitch(t, g.ends[0], o)
	g.cut = g.dropAll
	for i, at := range []**side{&g.near, &g.far} {
		e, other := g.ends[0][i], g.ends[1][i]
		*at = newSide(t, rocetest.At(e))
		(*at).second(t, other.IP, func(r *umem.Region) (rdma.Device, error) { return rocetest.Open(r, other.Ifname) })
	}
	return g
}

// second opens the device of the second network, with an address.
func (s *side) second(t *testing.T, ip netip.Addr, open func(*umem.Region) (rdma.Device, error)) {
	t.Helper()
	s.ns.Do(t, func() {
		d, err := open(s.region)
		s.must(err)
		t.Cleanup(func() { s.must(d.Close()) })
		e, err := OpenEndpoint(d, s.region)
		s.must(err)
		t.Cleanup(func() { s.must(e.Close()) })
		s.more, s.moreIP = append(s.more, e), append(s.moreIP, ip)
	})
}

// dropAll makes a switch drop all frames of the senders' end, and returns a function that ends that.
func (g *pathRig) dropAll(t *testing.T, number int) (mend func()) {
	t.Helper()
	e := g.ends[number][0]
	mend = e.Lose(t, testenv.FromEnd, 0)
	e.Lose(t, testenv.ToEnd, 0)
	return mend
}

// pathPair opens a receiver at both devices, and a sender with a path to each.
func (g *pathRig) pathPair(t *testing.T) (*taker, *source) {
	t.Helper()
	far, near := *g.far, *g.near
	far.TB, near.TB = t, t
	c := receiverConfig()
	c.Others = far.more
	k := far.newTaker(c, 128)
	s := senderConfig(k.address)
	s.Device = "first"
	s.Paths = []Path{{Device: "second", Endpoint: near.more[0], Address: k.others[0]}}
	return k, near.newSource(s)
}

// atPath waits until a path is connected, and returns the sender's statistics.
func (k *source) atPath(number int) SenderStats {
	k.Helper()
	return k.stats("path "+k.s.paths[number].device, func(s SenderStats) bool { return s.State == SenderConnected && s.Paths[number].State == PathConnected })
}

func TestPaths(t *testing.T) {
	g := newPathRig(t)
	t.Run("Fails", func(t *testing.T) { testPathFails(t, g) })
	t.Run("Silent", func(t *testing.T) { testPathSilent(t, g) })
	t.Run("Unprobed", func(t *testing.T) { testPathUnprobed(t, g) })
	t.Run("Idle", func(t *testing.T) { testPathIdle(t, g) })
	t.Run("Flaps", func(t *testing.T) { testPathFlaps(t, g) })
	t.Run("NotThere", func(t *testing.T) { testPathNotThere(t, g) })
	t.Run("Group", func(t *testing.T) { testPathsToGroup(t, g) })
	t.Run("GroupLeader", func(t *testing.T) { testLeaderOverPath(t, g) })
	g.writesToo(t, func(t *testing.T, g *pathRig) {
		t.Run("FailsWhileWriting", func(t *testing.T) { testPathFails(t, g) })
		t.Run("SilentWhileWriting", func(t *testing.T) { testPathSilent(t, g) })
	})
}

// writesToo runs a part with senders that write.
func (g *pathRig) writesToo(t *testing.T, part func(*testing.T, *pathRig)) {
	far := *g.far
	far.writes = true
	part(t, &pathRig{rig: &rig{TB: g.TB, near: g.near, far: &far}, ends: g.ends, cut: g.cut})
}

// testPathFails: a path that fails under traffic is left, and taken again when it is well. Each message arrives once.
func testPathFails(t *testing.T, g *pathRig) {
	k, p := g.pathPair(t)
	p.more(1000)
	p.await()
	if s := p.s.Stats(); s.Paths[0].State != PathConnected || s.Paths[0].Device != "first" || s.Paths[0].Messages < 1000 || s.Address != k.address {
		t.Errorf("the first path: %+v", s)
	}
	mend := g.cut(t, 0)
	began := time.Now()
	p.more(1000)
	s := p.atPath(1)
	took := time.Since(began)
	t.Logf("the second path was taken after %v: %s", took, s.Paths[0].Cause)
	if one := s.Paths[0]; one.State != PathFailed || one.Failures == 0 || one.Cause == "" || one.Left.IsZero() || s.Address != k.others[0] {
		t.Errorf("the first path: %+v, and the sender is at %s", one, s.Address)
	}
	p.await()
	mend()
	s = p.atPath(0)
	if one := s.Paths[1]; one.State != PathStandby || one.Left.IsZero() || one.Connections == 0 {
		t.Errorf("the second path: %+v", one)
	}
	p.more(1000)
	p.await()
	k.got(3000)
	k.whole(1)
	if s := p.s.Stats(); s.Sessions != 0 || s.Acknowledged != 3000 || s.Dropped != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
}

// testPathIdle: a path that fails without traffic is left, too.
func testPathIdle(t *testing.T, g *pathRig) {
	k, p := g.pathPair(t)
	p.more(10)
	p.await()
	mend := g.cut(t, 0)
	defer mend()
	began := time.Now()
	p.atPath(1)
	t.Logf("the second path was taken after %v", time.Since(began))
	p.more(10)
	p.await()
	k.got(20)
	k.whole(1)
}

// testPathFlaps: while a path comes and goes, each message arrives once.
func testPathFlaps(t *testing.T, g *pathRig) {
	testenv.Long(t, "SilentWhileWriting and FailsWhileWriting leave a path while messages are under way")
	k, p := g.pathPair(t)
	p.atPath(0)
	total := uint64(0)
	for range 4 {
		mend := g.cut(t, 0)
		p.more(2000)
		time.Sleep(500 * time.Millisecond)
		mend()
		p.more(2000)
		total += 4000
		time.Sleep(500 * time.Millisecond)
	}
	p.await()
	k.got(int(total))
	k.whole(1)
	s := p.s.Stats()
	t.Logf("%d messages again, paths %+v", s.Resent, s.Paths)
	if s.Acknowledged != total || s.Dropped != 0 || s.Sessions != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
}

// testPathNotThere: a sender whose first path leads nowhere connects over the second one.
func testPathNotThere(t *testing.T, g *pathRig) {
	mend := g.cut(t, 0)
	k, p := g.pathPair(t)
	p.more(100)
	p.await()
	if s := p.atPath(1); s.Paths[0].Connections != 0 || s.Paths[0].Failures == 0 {
		t.Errorf("the first path: %+v", s.Paths[0])
	}
	mend()
	p.atPath(0)
	p.more(100)
	p.await()
	k.got(200)
	k.whole(1)
}
