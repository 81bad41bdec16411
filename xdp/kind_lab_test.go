package xdp

import (
	"errors"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestBond: a bond of each mode receives and sends, with a program in generic mode, although its slaves have programs
// in the driver. If zero copy or a program in the driver is required, the error names the mode and the slaves.
func TestBond(t *testing.T) {
	labenv.Guest(t)
	labenv.Modules(t, "veth", "bonding")
	for _, mode := range []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"} {
		t.Run(mode, func(t *testing.T) { bond(t, mode) })
	}
}

func bond(t *testing.T, mode string) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	over := pair.B
	over.Ifname = "bond7"
	over.Run(t, "ip", "link", "add", over.Ifname, "type", "bond", "mode", mode, "miimon", "50")
	pair.B.SetDown(t)
	over.Run(t, "ip", "link", "set", pair.B.Ifname, "master", over.Ifname)
	over.Run(t, "ip", "link", "set", over.Ifname, "up")

	g := newRig(t, small())
	is := "bond7 (bond of " + pair.B.Ifname + ", mode " + mode + ")"
	_, err := g.tryOpen(&over, Config{Policy: Require})
	if !errors.Is(err, ErrNoZeroCopy) {
		t.Errorf("zero copy: %v", err)
	} else {
		testenv.MessageNames(t, err.Error(), []string{is, "use " + pair.B.Ifname + " below it", "no socket of the bond"})
	}
	_, err = g.tryOpen(&over, Config{Mode: bpf.Driver})
	if !errors.Is(err, bpf.ErrNoDriverMode) {
		t.Errorf("in the driver: %v", err)
	} else {
		testenv.MessageNames(t, err.Error(), []string{is, "use generic mode, or receive from the slaves"})
	}

	// The kernel and the bond send packets of their own.
	only, err := filter.Parse("ether proto 0x88b5")
	testenv.Must(t, err)
	i := g.open(&over, Config{Filter: only})
	if got := i.Granted(); got.ZeroCopy || got.Mode != bpf.Generic || got.WhyNotZeroCopy() == "" {
		t.Errorf("granted %+v", got)
	}
	far := g.open(&pair.A, Config{Filter: only})
	for _, each := range []*Interface{i, far} {
		for _, p := range each.Ports() {
			g.supply(p, 32)
		}
		g.start(each)
	}

	// A bond that has just got its slave may still wait for partners.
	sender := testenv.NewSender(t, &pair.A)
	want := packet(&pair.A, &over, 1, 200)
	got := g.until(i, want, func() {
		if _, err := sender.Send(want); err != nil {
			t.Fatal(err)
		}
	})
	back := packet(&over, &pair.A, 2, 200)
	from := i.Ports()[0]
	answer := g.until(far, back, func() {
		from.worker.Give(reaped(from))
		one := make([]umem.Frame, 1)
		if g.worker.Take(one) != 1 {
			t.Fatal("the pool is empty")
		}
		copy(g.region.Bytes(umem.Frame{Addr: one[0].Addr, Len: uint32(len(back))}), back)
		one[0].Len = uint32(len(back))
		if from.Send(one) != 1 {
			t.Fatal("there is no room to send")
		}
		testenv.Must(t, from.Kick())
	})
	g.worker.Give(got)
	g.worker.Give(answer)
}

func reaped(p *Port) []umem.Frame {
	fs := make([]umem.Frame, 64)
	return fs[:p.Reap(fs)]
}

// until sends every tenth of a second until a packet arrives, and returns the frames that have come.
func (g *rig) until(i *Interface, want []byte, send func()) (all []umem.Frame) {
	g.Helper()
	batch := make([]umem.Frame, 64)
	var last time.Time
	testenv.Wait(g, 20*time.Second, "a packet by "+i.Name(), func() bool {
		if time.Since(last) > 100*time.Millisecond {
			send()
			last = time.Now()
		}
		for _, p := range i.Ports() {
			all = append(all, batch[:p.Recv(batch)]...)
		}
		return len(all) > 0
	})
	for _, f := range all {
		if string(g.region.Bytes(f)) != string(want) {
			g.Errorf("another packet came: %x", g.region.Bytes(f)[:20])
		}
	}
	return all
}
