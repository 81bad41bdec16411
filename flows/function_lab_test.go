package flows

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/xdp"
)

// takings are the ways in which an administrator takes a virtual function away.
var takings = []struct {
	name string
	take func(testing.TB) (back func())
}{
	{"removed", func(t testing.TB) (back func()) { labenv.RemoveFunctions(t); return func() {} }},
	{"PF unbound", labenv.UnbindPhysical},
}

// TestFunction: a flow captures from a virtual function. When that is taken away under load, the flow fails and
// names it, what has come before is kept, and another flow on the same worker goes on.
func TestFunction(t *testing.T) {
	labenv.Guest(t)
	labenv.Modules(t, "veth")
	for _, way := range takings[:shorter(1, len(takings))] {
		t.Run(way.name, func(t *testing.T) { functionGone(t, way.take) })
	}
}

func functionGone(t *testing.T, take func(testing.TB) (back func())) {
	onFunction(t)
	c := newClinic(t, ", filter: udp dst port 5000", toFile) // igb0 is on the wire, too, and sends multicasts of IPv6
	c.start(t)
	c.capture(t, 100)
	end := load(t, &c.A, &c.B, c.sent)
	await(t, c.ill, "the load", func(s status.Flow) bool { return s.Packets > 200 })
	back := take(t)
	defer back()
	s := c.becomes(t, status.Failed, c.B.Ifname, xdp.ErrInterfaceGone.Error())
	end()
	if s.Durable.Packets != s.Packets || s.Dropped["write_failed"] != 0 {
		t.Errorf("what had come before is not kept: %+v", s)
	}
	got := c.illFiles(t)
	increasing(t, got) // the card may lose some of the load
	if uint64(len(got)) != s.Packets {
		t.Errorf("%d packets are in the files, %d were captured", len(got), s.Packets)
	}
	if err := c.try(t); !errors.Is(err, xdp.ErrInterfaceGone) {
		t.Errorf("start it again: %v", err)
	}
}

// TestFunctionOfRDMA: a flow to an RDMA peer, and one from RDMA clients, with RoCE in software on a virtual function,
// until that is removed.
func TestFunctionOfRDMA(t *testing.T) {
	labenv.Guest(t)
	labenv.Modules(t, "veth")
	for _, flow := range overRDMA[:shorter(1, len(overRDMA))] {
		t.Run(flow.name, func(t *testing.T) {
			onFunction(t)
			flow.lose(t, newRDMALab(t), func() { labenv.RemoveFunctions(t) })
		})
	}
}

// onFunction makes the test use a virtual function as end B.
func onFunction(t *testing.T) {
	t.Helper()
	labenv.Functions(t, 1)
	labenv.FunctionForm.Instead(t)
	before := granted
	granted.cards = true
	t.Cleanup(func() { granted = before })
}
