package paths

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

//lab:program cmd/unifiedd
//lab:program selftests/unified-flow-test

// labWires are the wires of both paths. Clients are at the cards, and the log is at the other ends.
var labWires = [2]labenv.Wire{{Card: "igb0", Here: "10.80.0.1", There: "10.80.0.2"}, {Card: "virtio1", Here: "10.79.0.1", There: "10.79.0.2"}}

// labFellows are the cards at the other ends.
var labFellows = [2]string{"igb1", "virtio0"}

// newLabRig makes a rig whose hosts have addresses in the guest, and no devices yet.
func newLabRig(t *testing.T) *rig {
	t.Helper()
	testenv.Leaks(t)
	r := &rig{t: t}
	for i := range hosts {
		r.hosts[i], r.dirs[i] = daemon.Here{}, testenv.DiskDir(t)
		for path, w := range labWires {
			if r.paths[path][i].address = w.Here; i == log {
				r.paths[path][i].address = w.There
			}
		}
	}
	return r
}

// use gives all hosts their devices of a path: that of the clients, and that of the log.
func (r *rig) use(path int, here, there string) {
	for i := range hosts {
		if r.paths[path][i].device = here; i == log {
			r.paths[path][i].device = there
		}
	}
}

// TestOnCards: a client with two paths to a log, over cards with AF_XDP, does what one over veth pairs does. A path is cut
// without a sign of it, or its card is set down.
func TestOnCards(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, overVeth)
	r := newLabRig(t)
	ns := labenv.Opposite(t, labWires[:]...)
	r.hosts[log] = ns
	for path, w := range labWires {
		r.use(path, "roce:"+w.Card, "roce:"+labFellows[path])
	}
	r.part(t, "cut", func(t *testing.T, path int) (mend func()) { return labWires[path].CutFrom(t, ns) }, testClient)
	r.part(t, "down", down, testClient)
}

// TestOnVerbs: a client with two paths over kernel verbs (Soft-RoCE on the cards) does so, too. All processes are in the
// namespace of the test, because Linux before 7 has Soft-RoCE only there. Packets go over the wires nevertheless.
func TestOnVerbs(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, overVeth)
	r := newLabRig(t)
	for path, w := range labWires {
		here, there := labenv.SoftRoCE(t, w.Card, w.Here+"/24"), labenv.SoftRoCE(t, labFellows[path], w.There+"/24")
		t.Cleanup(func() {
			labenv.RDMAAtRest(t, here)
			labenv.RDMAAtRest(t, there)
		})
		w.Around(t)
		w.Await(t, nil)
		r.use(path, here, there)
	}
	cut := func(t *testing.T, path int) (mend func()) {
		labWires[path].Cut(t)
		return func() { labWires[path].Mend(t) }
	}
	r.part(t, "cut", cut, testClient)
	r.part(t, "down", down, testClient)
}

// overVeth is why the short form leaves out these tests, which take minutes.
const overVeth = "TestClient runs the part over veth pairs"

// down sets the card of a path down.
func down(t *testing.T, path int) (mend func()) { return labWires[path].SetDown(t) }

// part runs a part of a test, with a log that is empty.
func (r *rig) part(t *testing.T, name string, cut func(t *testing.T, path int) (mend func()), run func(*testing.T, *rig)) {
	t.Run(name, func(t *testing.T) {
		one := *r
		one.t, one.dirs[log] = t, testenv.DiskDir(t)
		one.cut = func(path, _ int) (mend func()) { return cut(t, path) }
		run(t, &one)
	})
}
