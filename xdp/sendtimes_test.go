package xdp

import (
	"errors"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// stamps reports whether the kernel stamps sent packets; an older one must say why not.
func stamps(t *testing.T, g Granted) bool {
	t.Helper()
	if g.SendTimes == (g.NoSendTimes != nil) {
		t.Fatalf("%+v", g)
	}
	if !g.SendTimes && kernelHas(t, 6, 11) {
		t.Fatal(g.NoSendTimes)
	}
	return g.SendTimes
}

// TestSendTimes: each packet has the time at which it left, whether it is sent alone or with others: after it was sent,
// and before it was reaped. The bytes that arrive are those of the packet.
func TestSendTimes(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send, Policy: Copy, SendTimes: true})
	p := i.Ports()[0]
	if !stamps(t, i.Granted()) {
		return
	}
	peer := listen(t, &pair.B)
	sent := packets(&pair.A, &pair.B, 64, 300)
	frames := g.load(sent)
	before := uint64(time.Now().UnixNano())
	for _, f := range frames[:32] {
		if ok, err := p.SendNow(f); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if n := p.Send(frames[32:]); n != 32 {
		t.Fatalf("%d were sent", n)
	}
	testenv.Must(t, p.Kick())
	peer.expect(t, sent)
	var back [64]umem.Frame
	n := 0
	testenv.Wait(t, 5*time.Second, "all packets to be reaped", func() bool { n += p.Reap(back[n:]); return n == 64 })
	after, last := uint64(time.Now().UnixNano()), uint64(0)
	for k, f := range back {
		at, ok := p.SentAt(f)
		if !ok || at < before || at > after || at < last {
			t.Errorf("packet %d left at %d (%v), was sent behind %d and reaped before %d, and the one before it left at %d", k, at, ok, before, after, last)
		}
		last = at
	}
	if n := testenv.AllocsPerRun(t, 100, func() { p.SentAt(back[0]) }); n != 0 {
		t.Errorf("SentAt allocates %v times", n)
	}
	if _, ok := p.SentAt(umem.Frame{Addr: back[0].Addr &^ 4095}); ok {
		t.Error("a packet that begins its frame has a time")
	}
	g.worker.Give(back[:])
}

// TestSendTimesRoom: a packet that leaves no room for its time is refused, with SendNow and with Send, and those behind
// it leave. Without SendTimes there are no times.
func TestSendTimesRoom(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.A, Config{Direction: Send, Policy: Copy, SendTimes: true})
	if !stamps(t, i.Granted()) {
		return
	}
	p := i.Ports()[0]
	frames := g.load(packets(&pair.A, &pair.B, 2, 300))
	frames[0].Addr &^= 4095
	if ok, err := p.SendNow(frames[0]); ok || err != nil {
		t.Errorf("a packet without room was sent: %v, %v", ok, err)
	}
	frames[1].Addr = frames[1].Addr&^4095 + SendRoom
	if n := p.Send(frames); n != 2 || p.Kick() != nil {
		t.Fatalf("%d were taken", n)
	}
	var back [2]umem.Frame
	n := 0
	testenv.Wait(t, 5*time.Second, "both packets to be reaped", func() bool { n += p.Reap(back[n:]); return n == 2 })
	if back[0].Err() == nil || back[1].Err() != nil {
		t.Errorf("%v, %v", back[0].Err(), back[1].Err())
	}
	g.worker.Give(back[:])

	other := g.open(&pair.B, Config{Direction: Send, Policy: Copy})
	if got := other.Granted(); got.SendTimes || got.NoSendTimes != nil {
		t.Errorf("%+v", got)
	}
	if _, ok := other.Ports()[0].SentAt(frames[1]); ok {
		t.Error("there is a time, and none was asked for")
	}
	for _, bad := range []Config{{}, {Direction: Send, Gather: true}, {Direction: Send, Lent: true}, {Direction: Send, Shape: umem.Shape{Unaligned: true}}} {
		bad.SendTimes = true
		if j, err := g.tryOpen(&pair.B, bad); err == nil {
			t.Errorf("%+v: opened", bad)
			testenv.Check(t, j.Close())
		}
	}
	if why := noSendTimes(pair.A.Index); !errors.Is(why, errors.ErrUnsupported) {
		t.Errorf("veth has no zero copy with times: %v", why)
	}
}
