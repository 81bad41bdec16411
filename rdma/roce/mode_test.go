package roce

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// TestModeOnVeth: on a veth pair, the XDP program runs in generic mode.
func TestModeOnVeth(t *testing.T) {
	for _, s := range newRig(t, rigOptions{}).sides {
		if mode := s.dev.iface.Granted().Mode; mode != bpf.Generic {
			t.Errorf("the program of %v is in %v mode, want %v", s.dev, mode, bpf.Generic)
		}
	}
}

// TestZeroCopyOnVeth: if zero copy is required, the error says that the driver does not support it,
// and not that the program's mode excludes it.
func TestZeroCopyOnVeth(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	g := &rig{TB: t}
	region, err := umem.Open(umem.Config{Size: 16 << 20, Pages: umem.Ordinary})
	g.must(err)
	defer func() { g.must(region.Close()) }()
	p, err := NewProvider(Config{Region: region, Policy: xdp.Require})
	g.must(err)
	e := &testenv.NewPair(t, testenv.PairOptions{}).A
	e.Do(t, func() { _, err = p.Open(e.Ifname) })
	if !errors.Is(err, xdp.ErrNoZeroCopy) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("zero copy required: %v, want %v", err, xdp.ErrNoZeroCopy)
	}
}
