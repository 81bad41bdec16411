package xdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestPolicies: each policy has its defined result on an interface without zero copy.
func TestPolicies(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	_, err := g.tryOpen(&pair.B, Config{Policy: Require, Shape: umem.Shape{MultiBuffer: true}})
	var bind *BindError
	if !errors.Is(err, ErrNoZeroCopy) || !errors.As(err, &bind) || len(bind.Refused) != 2 || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatalf("required: %v", err)
	}
	for _, word := range []string{pair.B.Ifname, "zero copy: ", "zero copy with multi-buffer: ", "set the zero-copy policy to prefer"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	i := g.open(&pair.B, Config{Policy: Prefer})
	if got := i.Granted(); got.ZeroCopy || !strings.Contains(got.WhyNotZeroCopy(), "the driver does not have it") {
		t.Errorf("preferred: granted %+v, because %q", got, got.WhyNotZeroCopy())
	}
	testenv.Must(t, i.Close())
	i = g.open(&pair.B, Config{Policy: Copy, AlwaysWake: true})
	if got := i.Granted(); got.ZeroCopy || got.NeedWakeup || len(got.Refused) != 0 || got.WhyNotZeroCopy() != "" {
		t.Errorf("copy: granted %+v", got)
	}
}

func TestAttempts(t *testing.T) {
	g := newRig(t, small())
	zc, zcMany, many, plain := attempt{true, false}, attempt{true, true}, attempt{false, true}, attempt{}
	for _, c := range []struct {
		policy Policy
		wish   bool
		mtu    int
		mode   bpf.Mode
		want   []attempt
	}{
		{Prefer, false, 1500, bpf.Any, []attempt{zc, plain}},
		{Prefer, false, 9000, bpf.Any, []attempt{zc, plain}},
		{Prefer, true, 1500, bpf.Any, []attempt{zc, zcMany, many, plain}},
		{Prefer, true, 9000, bpf.Any, []attempt{zcMany, many, plain}},
		{Require, true, 1500, bpf.Driver, []attempt{zc, zcMany}},
		{Copy, true, 1500, bpf.Any, []attempt{many, plain}},
		{Prefer, false, 1500, bpf.Generic, []attempt{plain}},
		{Require, false, 1500, bpf.Generic, nil},
	} {
		cfg := Config{Holder: g.worker, Policy: c.policy, Shape: umem.Shape{MultiBuffer: c.wish}, Mode: c.mode}
		if got := cfg.attempts(&device{mtu: c.mtu, zcSegments: 8}); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%+v: %v, want %v", c, got, c.want)
		}
	}
	for _, c := range []struct {
		mtu      int
		segments uint32
		want     []attempt
	}{
		{1500, 8, []attempt{zcMany, zc}},
		{1500, 1, []attempt{zc, zcMany}},
		{9000, 1, []attempt{zcMany}},
	} {
		cfg := Config{Holder: g.worker, Policy: Require, Shape: umem.Shape{MultiBuffer: true}, Gather: true}
		if got := cfg.attempts(&device{mtu: c.mtu, zcSegments: c.segments}); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%+v: %v, want %v", c, got, c.want)
		}
	}
	refused := []Refusal{{ZeroCopy: true, Err: unix.EOPNOTSUPP}, {MultiBuffer: true, Err: unix.EINVAL}}
	if why := (Granted{Refused: refused}).WhyNotZeroCopy(); !strings.HasPrefix(why, "zero copy: ") || strings.Contains(why, "multi-buffer") {
		t.Errorf("no zero copy because %q", why)
	}
	if why := (Granted{Refused: refused[1:]}).WhyNotZeroCopy(); why != "" {
		t.Errorf("no zero copy, which was not tried, because %q", why)
	}
}

func TestParsePolicy(t *testing.T) {
	for _, p := range []Policy{Prefer, Require, Copy} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("maybe"); err == nil {
		t.Error("maybe is a policy")
	}
}

// TestConfigMistakes: Open refuses each mistake with its cause, and leaves nothing behind.
func TestConfigMistakes(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 2})
	g := newRig(t, small())
	other := newRig(t, small())
	for want, c := range map[string]Config{
		"ring size 100":          {RingSize: 100},
		"fill ring size 1048576": {FillSize: 1 << 20},
		"ring size 2":            {RingSize: 2},
		"headroom 3800":          {Shape: umem.Shape{Headroom: 3800}},
		"no queue 2":             {Queues: []uint32{0, 2}},
		"listed twice":           {Queues: []uint32{0, 0}},
		"direction 7":            {Direction: 7},
		"in generic mode":        {Policy: Require, Mode: bpf.Generic},
		"of another region":      {Holders: map[uint32]*umem.Holder{1: other.worker}},
	} {
		if _, err := g.tryOpen(&pair.B, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	for want, c := range map[string]Config{
		"no interface given": {Holder: g.worker},
		"no holder given":    {Interface: "lo"},
	} {
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	missing := pair.B
	missing.Ifname = "absent0"
	if _, err := g.tryOpen(&missing, Config{}); !errors.Is(err, ErrInterfaceGone) {
		t.Errorf("absent interface: %v", err)
	}
}

// TestRingSizes is HW_SW_MIN/MAX_RING_SIZE: the smallest and the largest rings pass packets, and
// send more than one batch.
func TestRingSizes(t *testing.T) {
	for _, size := range []uint32{4, 1 << 17} {
		pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
		g := newRig(t, small())
		a, b := g.open(&pair.A, Config{RingSize: size}), g.open(&pair.B, Config{RingSize: size})
		from, to := a.Ports()[0], b.Ports()[0]
		n := int(min(size, 1000))
		g.supply(to, n)
		g.start(b)
		if took := from.Send(g.load(packets(&pair.A, &pair.B, n, 100))); took != n {
			t.Fatalf("ring of %d: Send took %d", size, took)
		}
		g.finishSending(from, n)
		g.receive(to, n)
		g.balanced(b, uint64(n))
	}
}

// TestGenericMode: the program falls back to generic mode if necessary, and Granted says so.
func TestGenericMode(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	var lo *Interface
	var err error
	pair.B.Do(t, func() { lo, err = Open(Config{Interface: "lo", Holder: g.worker, RingSize: 64}) })
	testenv.Must(t, err)
	defer lo.Close()
	if got := lo.Granted(); got.Mode != bpf.Generic || got.ZeroCopy {
		t.Errorf("granted %+v", got)
	}
	pair.B.Do(t, func() {
		_, err = Open(Config{Interface: "lo", Holder: g.worker, RingSize: 64, Mode: bpf.Driver, Queues: []uint32{0}, BindTimeout: 1})
	})
	if err == nil {
		t.Error("driver mode on lo")
	}
}

// TestSupplyRefusesExtents: Supply refuses an extent, because it cannot receive packets.
func TestSupplyRefusesExtents(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, umem.Config{Size: 16 << 20, Extents: 4})
	p := g.open(&pair.B, Config{}).Ports()[0]
	extent, frames := make([]umem.Frame, 1), make([]umem.Frame, 2)
	g.worker.TakeExtents(extent)
	g.worker.Take(frames)
	if n := p.Supply([]umem.Frame{frames[0], extent[0], frames[1]}); n != 1 {
		t.Errorf("Supply took %d, want the one in front of the extent", n)
	}
}
