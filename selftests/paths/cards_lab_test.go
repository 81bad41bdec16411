//go:build lab

package paths

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

//lab:program cmd/unifiedd
//lab:program selftests/unified-flow-test

// The wires of both paths, and the cards at their other ends, where the log is.
var (
	wires   = [2]labenv.Wire{{Card: "igb0", Here: "10.80.0.1", There: "10.80.0.2"}, {Card: "virtio1", Here: "10.79.0.1", There: "10.79.0.2"}}
	fellows = [2]string{"igb1", "virtio0"}
)

// newLabRig makes a rig in the guest. Clients and the relay are at the cards, and the log is at the other ends.
func newLabRig(t *testing.T) *rig {
	t.Helper()
	testenv.Leaks(t)
	r := &rig{t: t}
	for i := range hosts {
		r.hosts[i], r.dirs[i] = daemon.Here{}, testenv.DiskDir(t)
		for path, w := range wires {
			if r.paths[path][i].address = w.Here; i == log {
				r.paths[path][i].address = w.There
			}
		}
	}
	return r
}

// TestOnCards: a client with two paths over cards with AF_XDP does what one over veth pairs does.
func TestOnCards(t *testing.T) {
	r := newLabRig(t)
	ns := labenv.Opposite(t, wires[:]...)
	r.hosts[log] = ns
	for path, w := range wires {
		r.paths[path][clients].device, r.paths[path][log].device = "roce:"+w.Card, "roce:"+fellows[path]
	}
	for name, cut := range map[string]func(path, host int) (mend func()){
		"cut":  func(path, _ int) (mend func()) { return wires[path].CutFrom(t, ns) },
		"down": func(path, _ int) (mend func()) { return wires[path].SetDown(t) },
	} {
		r.again(t, name, cut, testClient)
	}
}

// TestOnVerbs: relays and clients with two paths over kernel verbs (Soft-RoCE on the cards) do what they do over RoCE in
// software. All processes are in the namespace of the test, because Linux before 7 has Soft-RoCE only there.
func TestOnVerbs(t *testing.T) {
	r := newLabRig(t)
	for path, w := range wires {
		here, there := labenv.SoftRoCE(t, w.Card, w.Here+"/24"), labenv.SoftRoCE(t, fellows[path], w.There+"/24")
		t.Cleanup(func() {
			labenv.RDMAAtRest(t, here)
			labenv.RDMAAtRest(t, there)
		})
		w.Around(t)
		w.Await(t, nil)
		for i := range hosts {
			if r.paths[path][i].device = here; i == log {
				r.paths[path][i].device = there
			}
		}
	}
	cut := func(path, _ int) (mend func()) {
		wires[path].Cut(t)
		return func() { wires[path].Mend(t) }
	}
	r.again(t, "relay", cut, func(t *testing.T, r *rig) { testRelay(t, r, "send") })
	r.again(t, "client", func(path, _ int) (mend func()) { return wires[path].SetDown(t) }, testClient)
	testenv.Long(t, "TestVerbsPaths in flows/stream has the other parts")
	r.again(t, "write", cut, func(t *testing.T, r *rig) { testRelay(t, r, "write") })
	r.again(t, "active", cut, testActive)
}

// again runs a part with a rig whose log is empty.
func (r *rig) again(t *testing.T, name string, cut func(path, host int) (mend func()), part func(*testing.T, *rig)) {
	t.Run(name, func(t *testing.T) {
		one := *r
		one.t, one.cut = t, cut
		one.dirs[log] = testenv.DiskDir(t)
		part(t, &one)
	})
}
