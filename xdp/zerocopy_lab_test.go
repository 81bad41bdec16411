package xdp

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// grants reports whether a card of the lab has zero copy on the running kernel. It matches the
// table in docs/background/testing.md.
func grants(t *testing.T, card string) bool {
	t.Helper()
	return labenv.Kernel(t) == labenv.Linux7 && card != "virtio1"
}

// TestZeroCopyGranted: every card grants zero copy, or the error says why not.
func TestZeroCopyGranted(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab runs this; TestZeroCopy and TestRequireRefused stand for it")
	for _, pair := range []*testenv.Pair{labenv.Igb(t), labenv.VirtioNet(t)} {
		for _, e := range []*testenv.End{&pair.A, &pair.B} {
			g := newRig(t, umem.Config{Size: 8 << 20})
			i, err := g.tryOpen(e, Config{Policy: Require})
			switch {
			case err == nil && (!grants(t, e.Ifname) || !i.Granted().ZeroCopy):
				t.Errorf("%s grants zero copy (%+v), against docs/background/testing.md", e.Ifname, i.Granted())
			case err != nil && (grants(t, e.Ifname) || !errors.Is(err, ErrNoZeroCopy)):
				t.Errorf("%s: %v", e.Ifname, err)
			}
			t.Logf("%s: %v", e.Ifname, err)
			if err == nil {
				testenv.Check(t, i.Close())
			}
		}
	}
}

// TestZeroCopy: a card receives and sends on every queue, with zero copy if the kernel grants it.
func TestZeroCopy(t *testing.T) {
	labenv.Guest(t)
	pair := labenv.Igb(t)
	g := newRig(t, umem.Config{Size: 32 << 20})
	i := g.open(&pair.B, Config{Policy: Prefer, RingSize: 1024, Timestamps: true, Shape: umem.Shape{Headroom: 284, MultiBuffer: true}})
	zero := grants(t, pair.B.Ifname)
	if got := i.Granted(); got.ZeroCopy != zero || zero && got.MultiBuffer || got.Mode != bpf.Driver || (got.WhyNotZeroCopy() == "") != zero {
		t.Fatalf("granted %+v", got)
	}
	for _, p := range i.Ports() {
		g.supply(p, 256)
		testenv.Must(t, p.Kick())
	}
	g.start(i)
	labenv.Carry(t, pair)
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

// TestZeroCopyClose: after Close under traffic the card no longer writes to the frames that came back.
func TestZeroCopyClose(t *testing.T) {
	labenv.Guest(t)
	pair := labenv.Igb(t)
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
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		begin := time.Now()
		i := g.open(&pair.B, Config{Policy: Prefer, RingSize: 512, BindTimeout: 20 * time.Second})
		opened := time.Now()
		for _, p := range i.Ports() {
			g.supply(p, 200)
			testenv.Must(t, p.Kick())
		}
		g.start(i)
		testenv.Wait(t, 20*time.Second, "traffic", func() bool {
			for _, p := range i.Ports() {
				testenv.Must(t, p.Kick())
			}
			l, err := i.Ledger()
			return err == nil && l.Of(Waiting) > 5
		})
		closing := time.Now()
		for _, p := range i.Ports() {
			testenv.Must(t, p.Close())
		}
		closed := time.Now()
		clear(g.region.Data())
		time.Sleep(20 * time.Millisecond)
		for at, b := range g.region.Data() {
			if b != 0 {
				t.Fatalf("round %d: byte %#x was written after Close", round, at)
			}
		}
		testenv.Must(t, i.Close())
		t.Logf("round %d: open %v, close %v", round, opened.Sub(begin), closed.Sub(closing))
	}
}
