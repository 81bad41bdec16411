package xdp

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestRingFull is STAT_RX_FULL: with enough frames but a short rx ring, packets are lost as LostRingFull.
func TestRingFull(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{RingSize: 16, FillSize: 64})
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 50, 100), testenv.SendOptions{})
	s := g.atRest(p, 16, func(s Stats) bool { return s.Kernel.RingFull == 34 })
	if p.zeroCopy {
		s.Kernel.FillEmpty = 0 // the driver found the ring empty before there were frames
	}
	if s.Kernel != (KernelStats{RingFull: 34}) || s.Waiting != 16 {
		t.Errorf("stats %+v", s)
	}
	g.receive(p, 16)
	if l := g.balanced(i, 50); l.Of(LostRingFull) != 34 || l.Lost() != 34 {
		t.Errorf("ledger:%s", show(l))
	}
}

// atRest waits for the counted condition and for that many waiting packets. The kernel shows
// waiting packets only after it has handled all packets that arrived together.
func (g *rig) atRest(p *Port, waiting uint64, counted func(Stats) bool) (s Stats) {
	g.Helper()
	testenv.Wait(g, time.Second, "the packets", func() bool {
		s = g.stats(p)
		return s.Waiting >= waiting && counted(s)
	})
	return s
}

// TestNoFrames is STAT_RX_FILL_EMPTY: packets that find no frame are lost. The kernel counts each
// of them under two names.
func TestNoFrames(t *testing.T) {
	for _, many := range []bool{false, true} {
		pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
		g := newRig(t, small())
		i := g.open(&pair.B, Config{RingSize: 64, Shape: umem.Shape{MultiBuffer: many}})
		p := i.Ports()[0]
		g.supply(p, 20)
		g.start(i)
		testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 50, 100), testenv.SendOptions{})
		s := g.atRest(p, 20, func(s Stats) bool { return s.Kernel.Dropped == 30 })
		if s.Kernel != (KernelStats{Dropped: 30, FillEmpty: 30}) || s.Waiting != 20 {
			t.Errorf("multi-buffer %v: stats %+v", many, s)
		}
		if l := g.balanced(i, 50); l.Of(LostNoFrames) != 30 || l.Of(Waiting) != 20 {
			t.Errorf("multi-buffer %v: ledger:%s", many, show(l))
		}
		// The ring works again once there are frames.
		g.worker.Give(g.receive(p, 20))
		g.supply(p, 20)
		testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 20, 100), testenv.SendOptions{})
		g.receive(p, 20)
	}
}

// TestNoFramesForFragments: a packet that finds some frames, but not enough, is lost. Dropped
// counts it, FillEmpty does not.
func TestNoFramesForFragments(t *testing.T) {
	needFragments(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{RingSize: 64, Shape: umem.Shape{MultiBuffer: true}})
	p := i.Ports()[0]
	g.supply(p, 5)
	g.start(i)
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 4, 9000), testenv.SendOptions{}) // three frames each
	s := g.atRest(p, 1, func(s Stats) bool { return s.Kernel.Dropped == 3 })
	if s.Kernel.FillEmpty != 0 || s.Waiting != 1 {
		t.Errorf("stats %+v", s)
	}
	if l := g.balanced(i, 4); l.Of(LostNoFrames) != 3 {
		t.Errorf("ledger:%s", show(l))
	}
}

// TestTooLongForSocket is STAT_RX_DROPPED: packets that another program passes to a socket, and
// that do not fit its frames, are counted as LostTooLong.
func TestTooLongForSocket(t *testing.T) {
	needFragments(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 5000})
	g := newRig(t, small())
	program := ownProgram(t, &pair.B, true)
	i := g.open(&pair.B, Config{NoProgram: true})
	p := i.Ports()[0]
	testenv.Must(t, program.SetSocketOf(0, 0, p.FD()))
	g.supply(p, 64)
	sent := append(packets(&pair.A, &pair.B, 10, 100), packets(&pair.A, &pair.B, 7, 4500)...)
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{})
	g.receive(p, 10)
	testenv.Wait(t, time.Second, "the drops", func() bool { return g.stats(p).Kernel.Dropped == 7 })
	if s := g.stats(p); s.Kernel != (KernelStats{Dropped: 7}) {
		t.Errorf("stats %+v", s)
	}
	if l := g.balanced(i, 17); l.Of(LostTooLong) != 7 {
		t.Errorf("ledger:%s", show(l))
	}
}

// TestOverload: if several threads send at full speed more than the port may take, the ledger
// agrees with the sender's own count.
func TestOverload(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{RingSize: 64, FillSize: 128})
	p := i.Ports()[0]
	g.supply(p, 100)
	g.start(i)
	before, came := pair.A.Stats(t).TxDropped, pair.B.Stats(t).RxPackets
	var taken atomic.Uint64
	done := make(chan struct{})
	sender := testenv.NewSender(t, &pair.A)
	one := packet(&pair.A, &pair.B, 0, 200)
	go func() {
		defer close(done)
		for range testenv.Fewer(100_000) {
			if ok, err := sender.Send(one); ok && err == nil {
				taken.Add(1)
			}
		}
	}()
	batch := make([]umem.Frame, 64)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			time.Sleep(time.Millisecond)
		}
		n := p.Recv(batch)
		p.Supply(batch[:n])
		testenv.Check(t, p.Kick())
	}
	arrived := taken.Load() - (pair.A.Stats(t).TxDropped - before)
	if pair.IsCard() { // the wire between emulated cards loses packets when it is busy
		time.Sleep(time.Second)
		arrived = pair.B.Stats(t).RxPackets - came
	}
	testenv.Wait(t, 2*time.Second, "the last packets", func() bool {
		l, err := i.Ledger()
		return err == nil && l.Offered == arrived
	})
	l := g.balanced(i, arrived)
	if l.Of(LostRingFull)+l.Of(LostNoFrames) == 0 || l.Of(Received) == 0 {
		t.Errorf("nothing was overloaded:%s", show(l))
	}
	t.Logf("%d sent, %d dropped by the sender's end;%s", taken.Load(), taken.Load()-arrived, show(l))
}

// TestLedgerAfterClose: after Close the ledger keeps its last values.
func TestLedgerAfterClose(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 64)
	g.start(i)
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 9, 100), testenv.SendOptions{})
	g.receive(p, 9)
	testenv.Must(t, i.Close())
	if l := g.balanced(i, 9); l.Of(Received) != 9 {
		t.Errorf("ledger:%s", show(l))
	}
	if s := g.stats(p); s.Received.Packets != 9 {
		t.Errorf("stats %+v", s)
	}
}

// TestLedgerWhileClosing: after Close under traffic no packet is missing in the ledger.
func TestLedgerWhileClosing(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	sender := testenv.NewSender(t, &pair.A)
	one := packet(&pair.A, &pair.B, 0, 200)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			_, _ = sender.Send(one)
		}
	}()
	defer func() { stop.Store(true); <-done }()
	for range 5 {
		i := g.open(&pair.B, Config{})
		p := i.Ports()[0]
		g.supply(p, 200)
		g.start(i)
		testenv.Wait(t, 2*time.Second, "traffic", func() bool { return g.stats(p).Waiting > 50 })
		g.worker.Give(g.takeSome(p))
		testenv.Must(t, i.Close())
		l, err := i.Ledger()
		if err != nil || l.Missing() != 0 || l.Offered == 0 {
			t.Errorf("%v, %d offered, %d missing:%s", err, l.Offered, l.Missing(), show(l))
		}
	}
}

// takeSome receives the packets that are there.
func (g *rig) takeSome(p *Port) []umem.Frame {
	g.Helper()
	fs := make([]umem.Frame, 40)
	return fs[:p.Recv(fs)]
}
