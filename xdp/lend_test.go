package xdp

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestLent: a port sends packets that lie back to back in a lent extent, across the borders of
// frames, in place. The extent belongs to the port until Return, which returns it whole.
func TestLent(t *testing.T) { sendLent(t, 1500) }

// TestLentJumbo is TestLent with packets longer than one descriptor allows.
func TestLentJumbo(t *testing.T) {
	needFragments(t)
	sendLent(t, 9000)
}

func sendLent(t *testing.T, mtu int) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: mtu})
	g := newRig(t, umem.Config{Size: 16 << 20, FrameSize: 2048, ExtentSize: 256 << 10, Extents: 4})
	i := g.open(&pair.A, Config{Direction: Send, Lent: true, Shape: umem.Shape{Unaligned: true, MultiBuffer: mtu > 1500}})
	p := i.Ports()[0]
	peer := listen(t, &pair.B)
	extent := make([]umem.Frame, 1)
	if g.worker.TakeExtents(extent) != 1 {
		t.Fatal("no extent")
	}
	var sent [][]byte
	var full []umem.Frame
	at, crossing := extent[0].Addr+7, 0
	for n := range 120 {
		b := packet(&pair.A, &pair.B, uint32(n), 60+n*(mtu-60)/119)
		copy(g.region.At(at, uint64(len(b))), b)
		sent = append(sent, b)
		for rest := uint64(len(b)); rest > 0; {
			one := umem.Frame{Addr: at, Len: uint32(min(rest, 4096))}
			if at += uint64(one.Len); one.Addr>>12 != (at-1)>>12 {
				crossing++
			}
			if rest -= uint64(one.Len); rest > 0 {
				one.Options = umem.More
			}
			full = append(full, one)
		}
		if at > extent[0].Addr+(240<<10) {
			at = extent[0].Addr + uint64(n)
			break
		}
	}
	if crossing == 0 {
		t.Fatal("no packet lies across the bounds of a page: the test shows nothing")
	}
	p.Lend(extent)
	if held := p.held.Held(); held != 128 {
		t.Errorf("the port holds %d frames of an extent of 128", held)
	}
	want := map[uint64]int{}
	for _, f := range full {
		want[f.Addr&^1]++
	}
	for rest := full; len(rest) > 0; {
		n := p.Send(rest)
		rest = rest[n:]
		g.reapLent(p, n, want)
	}
	peer.expect(t, sent)
	for addr, n := range want {
		if n != 0 {
			t.Errorf("%#x: %d descriptors did not come back", addr, n)
		}
	}
	if s := g.stats(p); s.Sent.Packets != uint64(len(sent)) || s.Kernel.TxInvalid != 0 || s.Refused != 0 {
		t.Errorf("stats %+v", s)
	}
	unsent := func(when string) {
		t.Helper()
		if n, err := i.Unsent(); n != 0 || err != nil {
			t.Errorf("%s: the device did not send %d: %v", when, n, err)
		}
	}
	unsent("open")
	end := g.region.Size()
	for _, bad := range []umem.Frame{{Addr: end - 63, Len: 64}, {Addr: end + 4096, Len: 64}, {Addr: ^uint64(0) - 8, Len: 64}, {Addr: at, Len: 4097}, {Addr: at}} {
		if n := p.Send([]umem.Frame{bad}); n != 1 {
			t.Fatalf("Send took %d of one", n)
		}
		out := make([]umem.Frame, 2)
		if n := p.Reap(out); n != 1 || !errors.Is(out[0].Err(), unix.EINVAL) && !errors.Is(out[0].Err(), unix.EMSGSIZE) {
			t.Errorf("%+v: %d came back, %v", bad, n, out[0].Err())
		}
	}
	if s := g.stats(p); s.Kernel.TxInvalid != 0 {
		t.Errorf("the kernel saw %d bad descriptors", s.Kernel.TxInvalid)
	}
	p.Return(extent)
	g.worker.Give(extent)
	testenv.Must(t, i.Close())
	unsent("closed")
}

// reapLent reaps n descriptors and removes their addresses from want.
func (g *rig) reapLent(p *Port, n int, want map[uint64]int) {
	g.Helper()
	batch := make([]umem.Frame, 64)
	testenv.Wait(g, 10*time.Second, "what was sent", func() bool {
		testenv.Must(g, p.Kick())
		got := p.Reap(batch)
		for _, f := range batch[:got] {
			if f.Err() != nil {
				g.Fatal(f.Err())
			}
			want[f.Addr&^1]--
		}
		n -= got
		return n <= 0
	})
}

// TestLentSendsOnly: Open refuses lent memory for ports that receive.
func TestLentSendsOnly(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	for _, c := range []Config{{Lent: true}, {Shape: umem.Shape{Unaligned: true}}, {Direction: Send, Lent: true, Gather: true}} {
		if _, err := g.tryOpen(&pair.A, c); err == nil {
			t.Errorf("%+v was opened", c)
		}
	}
}
