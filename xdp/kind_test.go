package xdp

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// macvlanOn makes a macvlan on an end, with an address of its own.
func macvlanOn(t *testing.T, e *testenv.End) testenv.End {
	t.Helper()
	over := *e
	over.Ifname, over.MAC = "over0", net.HardwareAddr{0x02, 0x77, 0, 0, 9, 9}
	over.Run(t, "ip", "link", "add", over.Ifname, "link", e.Ifname, "address", over.MAC.String(), "type", "macvlan", "mode", "bridge")
	over.Run(t, "ip", "link", "set", over.Ifname, "up")
	return over
}

// TestMacvlan: a macvlan receives its own packets, with a program in generic mode, and sends. If zero copy or a
// program in the driver is required, the error names its kind and the interface below it.
func TestMacvlan(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	over := macvlanOn(t, &pair.B)
	g := newRig(t, small())
	_, err := g.tryOpen(&over, Config{Policy: Require})
	if !errors.Is(err, ErrNoZeroCopy) {
		t.Errorf("zero copy: %v", err)
	} else {
		testenv.MessageNames(t, err.Error(), []string{"over0 (macvlan on " + pair.B.Ifname + ")", "use " + pair.B.Ifname + " below it", "prefer"})
	}
	_, err = g.tryOpen(&over, Config{Mode: bpf.Driver})
	if !errors.Is(err, bpf.ErrNoDriverMode) {
		t.Errorf("in the driver: %v", err)
	} else {
		testenv.MessageNames(t, err.Error(), []string{"over0", "driver has no native XDP", "use generic mode"})
	}

	i := g.open(&over, Config{})
	if got := i.Granted(); got.ZeroCopy || got.Mode != bpf.Generic {
		t.Errorf("granted %+v", got)
	}
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	sent := append(packets(&pair.A, &pair.B, 8, 200), packets(&pair.A, &over, 8, 300)...)
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{})
	got := g.receive(p, 8)
	for n, f := range got {
		if data := g.region.Bytes(f); string(data) != string(sent[8+n]) {
			t.Errorf("packet %d: %d bytes %x", n, len(data), data[:min(20, len(data))])
		}
	}
	g.quiet(p)

	far := g.open(&pair.A, Config{})
	g.supply(far.Ports()[0], 64)
	g.start(far)
	back := got[:4]
	for n, f := range back {
		copy(g.region.Bytes(f), packet(&over, &pair.A, uint32(n), int(f.Len)))
	}
	if n := p.Send(back); n != len(back) {
		t.Fatalf("Send took %d of %d", n, len(back))
	}
	testenv.Must(t, p.Kick())
	arrived := g.receive(far.Ports()[0], len(back))
	for n, f := range arrived {
		if data := g.region.Bytes(f); string(data) != string(packet(&over, &pair.A, uint32(n), len(data))) {
			t.Errorf("packet %d that was sent: %x", n, data[:min(20, len(data))])
		}
	}
	g.worker.Give(arrived)
	g.worker.Give(got[4:])
}

// TestBondOf: an error about a bond names its mode and slaves, also if it has none.
func TestBondOf(t *testing.T) {
	for want, d := range map[string]device{
		"b0 (bond of no interfaces, mode active-backup)": {name: "b0"},
		"b0 (bond of e1, e2, mode active-backup)":        {name: "b0"},
	} {
		d.stack.Bond, d.stack.Mode = true, "active-backup"
		if strings.Contains(want, "e1") {
			d.stack.Below = []string{"e1", "e2"}
		}
		if got := d.describe(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestPassedOver: an interface whose packets no XDP program gets is refused by name, with what to use.
func TestPassedOver(t *testing.T) {
	for kind, text := range map[string]string{"ifb": "redirected", "vrf": "slaves"} {
		i := &Interface{device: &device{name: "x0", kind: kind}}
		err := i.suitKind()
		if !errors.Is(err, ErrPassedOver) {
			t.Fatalf("%s: %v", kind, err)
		}
		testenv.MessageNames(t, err.Error(), []string{"x0", kind, text, "engine: packet"})
	}
	testenv.Root(t)
	n := testenv.NewNamespace(t)
	n.Run(t, "ip", "link", "add", "ifb9", "type", "ifb")
	n.Run(t, "ip", "link", "set", "ifb9", "up")
	n.Do(t, func() {
		d, err := findDevice("ifb9")
		testenv.Must(t, err)
		defer func() { testenv.Check(t, d.close()) }()
		if err := (&Interface{device: d}).suitKind(); !errors.Is(err, ErrPassedOver) {
			t.Errorf("%v", err)
		}
	})
}
