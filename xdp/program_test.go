package xdp

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// ownProgram attaches a program of the test, as if another process had one on the interface.
func ownProgram(t *testing.T, e *testenv.End, many bool) *bpf.Program {
	t.Helper()
	p, err := bpf.Load(bpf.Config{Queues: 4, MultiBuffer: many})
	testenv.Must(t, err)
	t.Cleanup(func() { p.Close() })
	e.Do(t, func() { err = p.Attach(e.Index, bpf.Driver) })
	testenv.Must(t, err)
	return p
}

// attached returns the ID of the program on an interface, 0 if there is none.
func attached(t *testing.T, e *testenv.End) (id uint32) {
	t.Helper()
	e.Do(t, func() {
		l, err := netlink.LinkByName(e.Ifname)
		testenv.Must(t, err)
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			id = x.ProgId
		}
	})
	return id
}

// TestProgramCleanup is XDP_PROG_CLEANUP: the program is on the interface while it is open, once
// for all its queues, and gone afterwards.
func TestProgramCleanup(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, Queues: 2})
	g := newRig(t, small())
	if id := attached(t, &pair.B); id != 0 {
		t.Fatalf("program %d is there before", id)
	}
	i := g.open(&pair.B, Config{})
	if attached(t, &pair.B) == 0 {
		t.Error("no program while open")
	}
	for n, p := range i.Ports() {
		testenv.Check(t, p.Close())
		if attached(t, &pair.B) == 0 {
			t.Errorf("no program after port %d closed", n)
		}
	}
	testenv.Must(t, i.Close())
	if id := attached(t, &pair.B); id != 0 {
		t.Errorf("program %d is there afterwards", id)
	}
}

// TestForeignProgram: Open names the program of another process on the interface, and does not change it.
func TestForeignProgram(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	ownProgram(t, &pair.B, false)
	id := attached(t, &pair.B)
	_, err := g.tryOpen(&pair.B, Config{})
	if !errors.Is(err, bpf.ErrOccupied) {
		t.Errorf("open: %v", err)
	}
	if attached(t, &pair.B) != id {
		t.Error("the other program is no longer there")
	}
}

// TestLinkDetached is libxdp's link_detach: Check reports a program that another process has
// detached, and everything still closes.
func TestLinkDetached(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	g.start(i)
	testenv.Must(t, i.Check())
	testenv.DetachProgram(t, attached(t, &pair.B))
	err := i.Check()
	if !errors.Is(err, ErrProgramGone) || !strings.Contains(err.Error(), "nothing is in its place") {
		t.Errorf("Check: %v", err)
	}
	ownProgram(t, &pair.B, false)
	err = i.Check()
	if !errors.Is(err, ErrProgramGone) || !strings.Contains(err.Error(), "is in its place") {
		t.Errorf("Check: %v", err)
	}
	testenv.Check(t, i.Close())
	if attached(t, &pair.B) == 0 {
		t.Error("Close took somebody else's program off")
	}
}

// TestOwnProgram: the caller's program can pass packets to the sockets.
func TestOwnProgram(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	program := ownProgram(t, &pair.B, false)
	i := g.open(&pair.B, Config{NoProgram: true, Timestamps: true})
	p := i.Ports()[0]
	g.supply(p, 64)
	testenv.Must(t, program.SetSocketOf(0, 0, p.FD()))
	g.start(i)
	before := uint64(time.Now().UnixNano())
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 12, 100), testenv.SendOptions{})
	for _, f := range g.receive(p, 12) {
		if stamp := g.region.Side(f).Stamp; stamp < before || stamp > uint64(time.Now().UnixNano()) {
			t.Errorf("stamp %d, want the time of the batch", stamp)
		}
	}
	testenv.Check(t, i.Check())
	g.balanced(i, 12)
}

// TestProgramTries: in generic mode the program is always one that accepts only packets in one piece.
func TestProgramTries(t *testing.T) {
	for _, c := range []struct {
		mode    bpf.Mode
		granted Granted
		want    []programTry
	}{
		{bpf.Any, Granted{MultiBuffer: true}, []programTry{{bpf.Driver, true}, {bpf.Driver, false}, {bpf.Generic, false}}},
		{bpf.Any, Granted{}, []programTry{{bpf.Driver, false}, {bpf.Driver, true}, {bpf.Generic, false}}},
		{bpf.Any, Granted{ZeroCopy: true}, []programTry{{bpf.Driver, false}, {bpf.Driver, true}}},
		{bpf.Generic, Granted{MultiBuffer: true}, []programTry{{bpf.Generic, false}}},
		{bpf.Driver, Granted{MultiBuffer: true}, []programTry{{bpf.Driver, true}, {bpf.Driver, false}}},
	} {
		config := Config{Mode: c.mode}
		if got := config.programTries(&c.granted, true); !slices.Equal(got, c.want) {
			t.Errorf("%v, granted %+v: %v, want %v", c.mode, c.granted, got, c.want)
		}
	}
}
