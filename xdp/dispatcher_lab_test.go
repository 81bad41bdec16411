package xdp

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDispatcher: packets arrive beside programs of libxdp, and continue to arrive while libxdp's
// tools add and remove others. When they remove our program, Check reports it.
func TestDispatcher(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, testenv.OtherPass)
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Beside: &middle, Timestamps: true})
	if got := i.Granted(); !got.Dispatched || got.Mode != bpf.Driver {
		t.Errorf("granted %+v", got)
	}
	p := i.Ports()[0]
	g.supply(p, 200)
	g.start(i)
	come := func(when string) {
		t.Helper()
		if err := i.Check(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 10, 300), testenv.SendOptions{})
		g.worker.Give(g.receive(p, 10))
	}
	come("joined")
	others.Load(t, testenv.OtherDeny)
	come("another was loaded")
	others.Unload(t, testenv.OtherPass)
	come("one was unloaded")
	others.Unload(t, testenv.OtherDeny)
	come("nobody else is there")
	others.Load(t, testenv.OtherPass)
	come("one is there again")
	others.Unload(t, "unifiedd_capture")
	if err := i.Check(); !errors.Is(err, ErrProgramGone) || !strings.Contains(err.Error(), "is in its place") {
		t.Errorf("Check: %v", err)
	}
	testenv.Check(t, i.Close())
	if got := others.Names(t); !slices.Equal(got, []string{testenv.OtherPass}) {
		t.Errorf("afterwards there are %v", got)
	}
}

// TestDispatcherClock: the card's clock is not available in a dispatcher, and Granted says so.
func TestDispatcherClock(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, testenv.OtherPass)
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Beside: &middle, Timestamps: true, CardClock: PreferCard})
	if got := i.Granted(); got.CardClock || got.NoCardClock == nil {
		t.Errorf("granted %+v", got)
	}
	testenv.Must(t, i.Close())
	if _, err := g.tryOpen(&pair.B, Config{Beside: &middle, Timestamps: true, CardClock: RequireCard}); !errors.Is(err, ErrNoCardClock) {
		t.Errorf("required: %v", err)
	}
	if got := others.Names(t); !slices.Equal(got, []string{testenv.OtherPass}) {
		t.Errorf("afterwards there are %v", got)
	}
}

// TestDispatcherFull: if the program cannot join, Open returns one error, and not one for each way
// of binding.
func TestDispatcherFull(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, slices.Repeat([]string{testenv.OtherPass}, dispatcher.Most)...)
	g := newRig(t, small())
	_, err := g.tryOpen(&pair.B, Config{Beside: &middle})
	if !errors.Is(err, dispatcher.ErrFull) || errors.As(err, new(*BindError)) {
		t.Errorf("in a full dispatcher: %v", err)
	}
}

// TestDispatcherSelect: no packet is lost when the filter is exchanged while other programs change
// the dispatcher.
func TestDispatcherSelect(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, testenv.OtherPass)
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Beside: &middle, RingSize: 2048})
	p := i.Ports()[0]
	g.supply(p, 2000)
	g.start(i)
	const n = 2000
	sent := make(chan int)
	go func() {
		sent <- testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, n, 100), testenv.SendOptions{Rate: 1000})
	}()
	swaps := 0
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end) || swaps < 4; swaps++ {
		testenv.Check(t, i.SetFilter(nil))
		if swaps == 1 {
			others.Load(t, testenv.OtherDeny)
		}
		testenv.Check(t, i.Check())
	}
	if got := <-sent; got != n {
		t.Errorf("%d were sent", got)
	}
	g.receive(p, n)
	g.balanced(i, n)
	t.Logf("%d swaps", swaps)
}
