package xdp

import (
	"errors"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

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
