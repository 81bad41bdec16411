package xdp

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestNoAllocations: no verb allocates while packets are sent, received, supplied again and reaped.
func TestNoAllocations(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	from := g.open(&pair.A, Config{Direction: Send}).Ports()[0]
	i := g.open(&pair.B, Config{Timestamps: true, CardClock: PreferCard})
	to := i.Ports()[0]
	g.supply(to, 256)
	g.start(i)
	road := newRoad(g, from, to, &pair.A, &pair.B, 64, 300)
	road.round(t)
	if n := testenv.AllocsPerRun(t, 200, func() { road.round(t) }); n != 0 {
		t.Errorf("%v allocations in a round of 64 packets", n)
	}
	bad := []umem.Frame{{Addr: road.full[0].Addr, Len: 1}}
	one := make([]umem.Frame, 1)
	if n := testenv.AllocsPerRun(t, 200, func() {
		if from.Send(bad) != 1 || from.Reap(one) != 1 || one[0].Err() == nil {
			t.Error("a bad frame did not come back failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations in a refusal", n)
	}
	pair.A.SetDown(t)
	from.Send(road.full[:1])
	if n := testenv.AllocsPerRun(t, 200, func() {
		if from.Kick() == nil {
			t.Error("Kick works on an interface that is down")
		}
	}); n != 0 {
		t.Errorf("%v allocations in a Kick that fails", n)
	}
}

// road passes the same packets from one port to another, again and again.
type road struct {
	from, to *Port
	full     []umem.Frame // the packets to send in each round
	sent     []umem.Frame
	got      []umem.Frame
}

func newRoad(g *rig, from, to *Port, a, b *testenv.End, batch, size int) *road {
	return &road{
		from: from, to: to, full: g.load(packets(a, b, batch, size)),
		sent: make([]umem.Frame, batch), got: make([]umem.Frame, batch),
	}
}

// round sends all packets, receives them and supplies their frames again.
func (r *road) round(t testing.TB) {
	if n := r.from.Send(r.full); n != len(r.full) {
		t.Fatalf("Send took %d", n)
	}
	deadline := time.Now().Add(2 * time.Second)
	for reaped, received := 0, 0; reaped < len(r.full) || received < len(r.full); {
		testenv.Must(t, r.from.Kick())
		reaped += r.from.Reap(r.sent)
		n := r.to.Recv(r.got)
		if took := r.to.Supply(r.got[:n]); took != n {
			t.Fatalf("Supply took %d of %d", took, n)
		}
		received += n
		testenv.Must(t, r.to.Kick())
		if time.Now().After(deadline) {
			t.Fatalf("%d reaped and %d received of %d after two seconds", reaped, received, len(r.full))
		}
	}
}
