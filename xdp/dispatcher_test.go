package xdp

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// middle is libxdp's default priority.
var middle = uint32(dispatcher.DefaultPriority)

// TestDispatcherNone: without a dispatcher on the interface, Open attaches the program as usual. If
// another program is there that is not a dispatcher, Open fails.
func TestDispatcherNone(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	testenv.NewLibxdp(t, &pair.B)
	g := newRig(t, small())
	i := g.open(&pair.B, Config{Beside: &middle})
	if i.Granted().Dispatched {
		t.Error("it is in a dispatcher")
	}
	g.start(i)
	testenv.Check(t, i.Check())
	testenv.Must(t, i.Close())
	ownProgram(t, &pair.B, false)
	if _, err := g.tryOpen(&pair.B, Config{Beside: &middle}); !errors.Is(err, bpf.ErrOccupied) {
		t.Errorf("beside a program that is no dispatcher: %v", err)
	}
}
