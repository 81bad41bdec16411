//go:build zerocopy

package xdp

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// The tests of this file need two real interfaces wired to each other, whose
// driver has zero copy, such as two emulated igb cards in a virtual machine on Linux
// 7.2. They are named in the environment; each test moves them into namespaces of
// their own, from which the kernel moves them back:
//
//	XDP_TEST_A=eth0 XDP_TEST_B=eth1 go test -tags zerocopy -run ZeroCopy ./xdp

// cards returns the two interfaces, set up.
func cards(t *testing.T) *testenv.Pair {
	t.Helper()
	p := &testenv.Pair{A: card(t, "XDP_TEST_A"), B: card(t, "XDP_TEST_B")}
	carry(t, p)
	return p
}

// carry waits until both cards have a link. A card that is given a program or a
// socket loses it for some seconds.
func carry(t *testing.T, p *testenv.Pair) {
	t.Helper()
	time.Sleep(time.Second)
	for _, e := range []*testenv.End{&p.A, &p.B} {
		testenv.Wait(t, 20*time.Second, e.Ifname+" to carry", func() (carries bool) {
			e.Do(t, func() {
				l, err := netlink.LinkByName(e.Ifname)
				carries = err == nil && l.Attrs().OperState == netlink.OperUp
			})
			return carries
		})
	}
}

func card(t *testing.T, variable string) testenv.End {
	t.Helper()
	name := os.Getenv(variable)
	var l netlink.Link
	testenv.Wait(t, 5*time.Second, variable+"="+name+" to be there", func() bool {
		var err error
		l, err = netlink.LinkByName(name)
		return err == nil
	})
	e := testenv.End{Namespace: testenv.NewNamespace(t), Ifname: name, MAC: l.Attrs().HardwareAddr}
	ns := openFile(t, "/run/netns/"+e.Name)
	defer ns.Close()
	if err := netlink.LinkSetNsFd(l, int(ns.Fd())); err != nil {
		t.Fatal(err)
	}
	e.Do(t, func() {
		for _, file := range []string{"all", "default", name} {
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+file+"/disable_ipv6", []byte("1"), 0)
		}
		l, err := netlink.LinkByName(name)
		if err == nil {
			e.Index = l.Attrs().Index
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return e
}

// TestZeroCopy receives and sends with zero copy, on every queue.
func TestZeroCopy(t *testing.T) {
	pair := cards(t)
	g := newRig(t, umem.Config{Size: 32 << 20})
	i := g.open(&pair.B, Config{Policy: Require, RingSize: 1024, Timestamps: true, Shape: umem.Shape{Headroom: 284, MultiBuffer: true}})
	if got := i.Granted(); !got.ZeroCopy || got.MultiBuffer || got.Mode != bpf.Driver || got.WhyNotZeroCopy() != "" {
		t.Fatalf("granted %+v", got)
	}
	for _, p := range i.Ports() {
		g.supply(p, 600)
		if err := p.Kick(); err != nil {
			t.Fatal(err)
		}
	}
	g.start(i)
	carry(t, pair)
	sent := packets(&pair.A, &pair.B, 200, 1400)
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{Rate: 2000})
	got := g.receiveAny(i, len(sent))
	for n, f := range got {
		if start, _ := g.region.Start(f); f.Addr-start != 540 || !bytes.Equal(g.region.Bytes(f), sent[n]) {
			t.Fatalf("packet %d landed at %d with %d bytes, or differs", n, f.Addr-start, f.Len)
		}
		if stamp := g.region.Side(f).Stamp; stamp == 0 {
			t.Fatalf("packet %d has no time", n)
		}
	}
	t.Logf("metadata refused: %v", i.program.MetaRefused())
	peer := listen(t, &pair.A)
	p := i.Ports()[0]
	for n, f := range got {
		sent[n] = packet(&pair.B, &pair.A, uint32(n), 1400)
		copy(g.region.Bytes(f), sent[n])
	}
	if n := p.Send(got); n != len(got) {
		t.Fatalf("Send took %d", n)
	}
	g.finishSending(p, len(got))
	peer.expect(t, sent)
	l, err := i.Ledger()
	if err != nil || l.Missing() != 0 || l.Of(Received) != uint64(len(sent)) {
		t.Errorf("%v, %d missing:%s", err, l.Missing(), show(l))
	}
}

// TestZeroCopyClose closes under traffic and watches the frames that came back:
// the card must have let go of them.
func TestZeroCopyClose(t *testing.T) {
	pair := cards(t)
	g := newRig(t, umem.Config{Size: 16 << 20})
	sender := testenv.NewSender(t, &pair.A)
	one := packet(&pair.A, &pair.B, 0, 1400)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = sender.Send(one)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for round := range 10 {
		begin := time.Now()
		i := g.open(&pair.B, Config{Policy: Require, RingSize: 512, BindTimeout: 20 * time.Second})
		opened := time.Now()
		for _, p := range i.Ports() {
			g.supply(p, 500)
			if err := p.Kick(); err != nil {
				t.Fatal(err)
			}
		}
		g.start(i)
		testenv.Wait(t, 20*time.Second, "traffic", func() bool {
			for _, p := range i.Ports() {
				if err := p.Kick(); err != nil {
					t.Fatal(err)
				}
			}
			l, err := i.Ledger()
			return err == nil && l.Of(Waiting) > 5
		})
		closing := time.Now()
		for _, p := range i.Ports() {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		closed := time.Now()
		clear(g.region.Data())
		time.Sleep(20 * time.Millisecond)
		for at, b := range g.region.Data() {
			if b != 0 {
				t.Fatalf("round %d: byte %#x was written after Close", round, at)
			}
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: open %v, close %v", round, opened.Sub(begin), closed.Sub(closing))
	}
}
