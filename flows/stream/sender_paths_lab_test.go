//go:build verbs && cgo

package stream

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// pathWires are the wires of both paths. Senders are at the cards, and receivers at the other ends.
var pathWires = [2]labenv.Wire{{Card: "igb0", Here: "10.80.0.1", There: "10.80.0.2"}, {Card: "virtio1", Here: "10.79.0.1", There: "10.79.0.2"}}

// pathFellows are the cards at the other ends.
var pathFellows = [2]string{"igb1", "virtio0"}

// newCardPaths makes a rig with RoCE in software on AF_XDP sockets of four cards. The receivers' cards are in a namespace
// of their own.
func newCardPaths(t *testing.T) *pathRig {
	t.Helper()
	testenv.Leaks(t)
	ns := labenv.Opposite(t, pathWires[:]...)
	g := &pathRig{rig: &rig{TB: t}, cut: func(t *testing.T, number int) (mend func()) { return pathWires[number].CutFrom(t, ns) }}
	on := func(card string) func(*umem.Region) (rdma.Device, error) {
		return func(r *umem.Region) (rdma.Device, error) {
			d, err := rocetest.Open(r, card)
			if err == nil && d.(*roce.Device).Granted().ZeroCopy != labenv.ZeroCopy(t, card) {
				t.Errorf("%s is granted %+v", card, d.(*roce.Device).Granted())
			}
			return d, err
		}
	}
	g.near = newSide(t, rocetest.Machine{IP: netip.MustParseAddr(pathWires[0].Here), Open: on(pathWires[0].Card)})
	g.near.second(t, netip.MustParseAddr(pathWires[1].Here), on(pathWires[1].Card))
	g.far = newSide(t, rocetest.Machine{In: ns, IP: netip.MustParseAddr(pathWires[0].There), Open: on(pathFellows[0])})
	g.far.second(t, netip.MustParseAddr(pathWires[1].There), on(pathFellows[1]))
	for _, w := range pathWires {
		w.Await(t, ns)
	}
	return g
}

// newVerbsPaths makes a rig with kernel verbs (Soft-RoCE) on the same cards. All are in the namespace of the process,
// because Linux before 7 has Soft-RoCE only there. Packets go over the wires nevertheless.
func newVerbsPaths(t *testing.T) *pathRig {
	t.Helper()
	testenv.Leaks(t)
	g := &pathRig{rig: &rig{TB: t}, cut: func(t *testing.T, number int) (mend func()) {
		pathWires[number].Cut(t)
		return func() { pathWires[number].Mend(t) }
	}}
	open := func(card, address string) func(*umem.Region) (rdma.Device, error) {
		device := labenv.SoftRoCE(t, card, address+"/24")
		t.Cleanup(func() { labenv.RDMAAtRest(t, device) })
		return func(*umem.Region) (rdma.Device, error) { return providers.Open(device, roce.Config{}) }
	}
	var near, far [2]func(*umem.Region) (rdma.Device, error)
	for i, w := range pathWires {
		near[i], far[i] = open(w.Card, w.Here), open(pathFellows[i], w.There)
		w.Around(t)
		w.Await(t, nil)
	}
	g.near = newSide(t, rocetest.Machine{IP: netip.MustParseAddr(pathWires[0].Here), Open: near[0]})
	g.near.second(t, netip.MustParseAddr(pathWires[1].Here), near[1])
	g.far = newSide(t, rocetest.Machine{IP: netip.MustParseAddr(pathWires[0].There), Open: far[0]})
	g.far.second(t, netip.MustParseAddr(pathWires[1].There), far[1])
	return g
}

// down returns the rig with paths that fail because the sender's card is set down.
func (g *pathRig) down() *pathRig {
	other := *g
	other.cut = func(t *testing.T, number int) (mend func()) { return pathWires[number].SetDown(t) }
	return &other
}

// TestCardPaths: TestPaths and TestActivePaths pass over cards with AF_XDP, and RoCE in software. Paths fail without a sign
// of it, and because a card is set down.
func TestCardPaths(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, overVeth)
	testLabPaths(t, newCardPaths(t), "")
}

// TestVerbsPaths: they pass over kernel verbs, too. A path without a sign of life is left within the time that docs/how-to/paths.md has.
func TestVerbsPaths(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, overVeth)
	testLabPaths(t, newVerbsPaths(t), "IBV_WC_RETRY_EXC_ERR")
}

// overVeth is why the short form leaves out these tests, which take minutes.
const overVeth = "TestPaths and TestActivePaths run the parts over veth pairs"

// testLabPaths runs those parts that hold if a path also fails by itself, as in a busy guest. cause is in the text that says why a path that is cut has failed.
func testLabPaths(t *testing.T, g *pathRig, cause string) {
	t.Run("Left", func(t *testing.T) { testPathLeft(t, g, cause) })
	t.Run("Down", func(t *testing.T) { testPathFails(t, g.down()) })
	t.Run("ActiveFlaps", func(t *testing.T) { testActiveFlaps(t, g) })
	t.Run("Fails", func(t *testing.T) { testPathFails(t, g) })
	t.Run("Idle", func(t *testing.T) { testPathIdle(t, g) })
	t.Run("Silent", func(t *testing.T) { testPathSilent(t, g) })
	t.Run("ActiveSilent", func(t *testing.T) { testActiveSilent(t, g) })
	t.Run("Flaps", func(t *testing.T) { testPathFlaps(t, g) })
	t.Run("FlapsDown", func(t *testing.T) { testPathFlaps(t, g.down()) })
	t.Run("NotThere", func(t *testing.T) { testPathNotThere(t, g) })
	g.writesToo(t, func(t *testing.T, g *pathRig) {
		t.Run("FailsWhileWriting", func(t *testing.T) { testPathFails(t, g) })
		t.Run("SilentWhileWriting", func(t *testing.T) { testPathSilent(t, g) })
	})
	t.Run("ActiveFlapsDown", func(t *testing.T) { testActiveFlaps(t, g.down()) })
	t.Run("ActiveAllFail", func(t *testing.T) { testActiveAllFail(t, g) })
}

// testPathLeft: a path that is cut while there are messages to send is left after the retries of its device. A device waits
// for up to four times the timeout, each time. The guest may be busy, so the shortest of some times counts. All messages
// before the cut are acknowledged: it is noticed by those after it, and not by a probe.
func testPathLeft(t *testing.T, g *pathRig, cause string) {
	const rounds = 3
	const timeout = 4096 * time.Nanosecond << pathTimeout
	const limit = 4*(1+pathRetries)*timeout + maxFinalMessages/4
	k, p := g.pathPair(t)
	var all []time.Duration
	for range rounds {
		p.atPath(0)
		p.more(500)
		p.await()
		began := time.Now()
		mend := g.cut(t, 0)
		p.more(500)
		s := p.stats("the first path to be left", func(s SenderStats) bool { return s.Paths[0].Left.After(began) })
		all = append(all, s.Paths[0].Left.Sub(began))
		t.Logf("the path was left after %v: %s", all[len(all)-1], s.Paths[0].Cause)
		if !strings.Contains(s.Paths[0].Cause, cause) {
			t.Errorf("the path was left because %s", s.Paths[0].Cause)
		}
		p.atPath(1)
		mend()
		p.await()
	}
	p.atPath(0)
	k.got(1000 * rounds)
	k.whole(1)
	if s := p.s.Stats(); s.Sessions != 0 || s.Acknowledged != 1000*rounds || s.Dropped != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
	if least := slices.Min(all); least > limit {
		t.Errorf("the path was left after %v at best, and should be within %v", least, limit)
	}
}
