package xdp

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestCardClock: if the driver supports a card's clock but no card exists, the program is bound to the
// interface, and every packet has the system's time. A thread in another namespace can exchange the filter.
func TestCardClock(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	if err := probeStamps(t, &pair.B); errors.Is(err, ErrNotSupported) {
		t.Skipf("not on this kernel: %v", err)
	}
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Timestamps: true, CardClock: RequireCard, Shape: umem.Shape{Headroom: 284}})
	if got := i.Granted(); !got.CardClock || got.PTPClock != -1 || got.NoCardClock != nil || got.Mode != bpf.Driver {
		t.Fatalf("granted %+v", got)
	}
	p := i.Ports()[0]
	g.supply(p, 200)
	g.start(i)
	for round := range 2 {
		before := uint64(time.Now().Add(-time.Millisecond).UnixNano())
		testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 20, 300), testenv.SendOptions{})
		got := g.receive(p, 20)
		for n, f := range got {
			side := g.region.Side(f)
			if side.Clock != umem.SystemClock || side.Stamp < before || side.Stamp > uint64(time.Now().Add(time.Millisecond).UnixNano()) {
				t.Errorf("round %d, packet %d arrived at %d by clock %d", round, n, side.Stamp, side.Clock)
			}
			if start, _ := g.region.Start(f); f.Addr-start != 540 {
				t.Errorf("packet %d landed at %d", n, f.Addr-start)
			}
		}
		if i.program.MetaRefused() {
			t.Error("metadata of 16 bytes was refused")
		}
		if s := g.stats(p); s.Stamped != 0 {
			t.Errorf("%d packets have a time of a card that is none", s.Stamped)
		}
		testenv.Must(t, i.SetFilter(mustFilter(t, "ether proto 0x88b5")))
	}
}

func mustFilter(t testing.TB, text string) *filter.Expr {
	t.Helper()
	e, err := filter.Parse(text)
	testenv.Must(t, err)
	return e
}

// probeStamps is stampsArrival for an end.
func probeStamps(t testing.TB, e *testenv.End) (err error) {
	t.Helper()
	e.Do(t, func() { err = stampsArrival(e.Index) })
	return err
}

// TestCardClockRefused: Open reports why a program cannot ask for the card's clock.
func TestCardClockRefused(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	why := map[string]Config{
		"generic mode": {Mode: bpf.Generic},
		"program":      {NoProgram: true},
	}
	if errors.Is(probeStamps(t, &pair.B), ErrNotSupported) {
		why = map[string]Config{"Linux 6.7": {}}
	}
	g := newRig(t, small())
	for word, c := range why {
		c.Timestamps, c.CardClock = true, RequireCard
		i, err := g.tryOpen(&pair.B, c)
		if !errors.Is(err, ErrNoCardClock) || !strings.Contains(err.Error(), word) {
			t.Errorf("required in vain: %v", err)
		}
		if err == nil {
			i.Close()
		}
		c.CardClock = PreferCard
		i, err = g.tryOpen(&pair.B, c)
		testenv.Must(t, err)
		if got := i.Granted(); got.CardClock || got.PTPClock != -1 || got.NoCardClock == nil || !strings.Contains(got.NoCardClock.Error(), word) {
			t.Errorf("granted %+v", got)
		}
		testenv.Check(t, i.Close())
	}
	for _, c := range []Config{{CardClock: PreferCard}, {CardClock: RequireCard + 1, Timestamps: true}} {
		if i, err := g.tryOpen(&pair.B, c); err == nil {
			i.Close()
			t.Errorf("%+v was accepted", c)
		}
	}
}

// TestCardTime: Recv reads the times that the program writes, with a card's time and without.
func TestCardTime(t *testing.T) {
	g := newRig(t, small())
	fs := g.load([][]byte{make([]byte, 64)})
	defer g.worker.Give(fs)
	c := clock{card: true, offset: 1000}
	meta := g.region.At(fs[0].Addr-cardBytes, cardBytes)
	putWords(meta, 0, 7)
	if got := c.read(g.region, fs[0].Addr); got != (arrival{1007, umem.SystemClock}) {
		t.Errorf("without a time of the card: %+v", got)
	}
	putWords(meta, 123, 7)
	if got := c.read(g.region, fs[0].Addr); got != (arrival{123, umem.CardClock}) {
		t.Errorf("with a time of the card: %+v", got)
	}
	c.card = false
	if got := c.read(g.region, fs[0].Addr); got != (arrival{1007, umem.SystemClock}) {
		t.Errorf("where the card is not asked: %+v", got)
	}
}

func putWords(b []byte, words ...uint64) {
	for n, w := range words {
		binary.NativeEndian.PutUint64(b[8*n:], w)
	}
}
