package xdp

import (
	"bytes"
	"testing"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

func TestSendReceive(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	if got := i.Granted(); got.ZeroCopy || got.Mode != bpf.Driver || len(got.Refused) == 0 {
		t.Errorf("granted %+v, want copy in driver mode with a refusal", got)
	}
	p := i.Ports()[0]
	g.supply(p, 128)
	g.start(i)
	sent := packets(&pair.A, &pair.B, 100, 1024)
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{})
	for n, f := range g.receive(p, 100) {
		if !bytes.Equal(g.region.Bytes(f), sent[n]) {
			t.Fatalf("packet %d differs", n)
		}
		start, _ := g.region.Start(f)
		if f.Addr != start+umem.PacketHeadroom {
			t.Fatalf("packet %d landed at %#x in its frame", n, f.Addr-start)
		}
		g.worker.Give([]umem.Frame{f})
	}
	l, err := i.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", l)
}
