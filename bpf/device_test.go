package bpf

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDeviceRefused: Load refuses the card's clock where the configuration excludes it or the card
// has none.
func TestDeviceRefused(t *testing.T) {
	for _, c := range []Config{{Queues: 1, Device: 1}, {Queues: 1, Device: -1, Timestamps: true}, {Queues: 1, Device: 1 << 40, Timestamps: true}} {
		if p, err := Load(c); err == nil {
			p.Close()
			t.Errorf("loaded for %+v", c)
		}
	}
	testenv.Root(t)
	const loopback = 1
	if p, err := Load(Config{Queues: 1, Device: loopback, Timestamps: true}); !errors.Is(err, unix.EOPNOTSUPP) {
		p.Close()
		t.Errorf("for the loopback interface, which has no clock: %v", err)
	}
}

// TestDeviceOnly attaches a program that is bound to an interface, to that interface and to another
// one. It replaces the filter from a thread in another namespace.
func TestDeviceOnly(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	other := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	var p *Program
	pair.B.Do(t, func() {
		p = mustLoad(t, Config{Queues: 1, Timestamps: true, Device: pair.B.Index})
		if err := p.Attach(pair.B.Index, Generic); err == nil {
			t.Error("attached in generic mode")
		}
	})
	other.B.Do(t, func() {
		if err := p.Attach(other.B.Index, Driver); err == nil {
			t.Error("attached to another interface")
		}
	})
	pair.B.Do(t, func() { testenv.Check(t, p.Attach(pair.B.Index, Driver)) })
	testenv.Check(t, p.Replace(mustParse(t, "port 80")))
}
