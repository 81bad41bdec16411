package xdp

import (
	"bytes"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSendNow: SendNow sends each packet at once, until there is no room.
func TestSendNow(t *testing.T) {
	for name, gather := range map[string]bool{"gathering": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
			g := newRig(t, small())
			p := g.open(&pair.A, Config{Direction: Send, Policy: Copy, Gather: gather}).Ports()[0]
			peer := listen(t, &pair.B)
			sent := packets(&pair.A, &pair.B, 256, 300)
			frames := g.load(sent)
			for i, f := range frames {
				if ok, err := p.SendNow(f); !ok || err != nil {
					t.Fatalf("packet %d: %v, %v", i, ok, err)
				}
			}
			peer.expect(t, sent)
			if ok, _ := p.SendNow(frames[0]); ok {
				t.Error("sent without room")
			}
			g.finishSending(p, len(sent))
			s := g.stats(p)
			if s.Sent.Packets != 256 || s.Sent.Bytes != 256*300 || s.Completed != 256 || s.Refused != 0 {
				t.Errorf("stats %+v", s)
			}
			for _, bad := range []umem.Frame{{Addr: 0, Len: etherHeader - 1}, {Addr: 4000, Len: 97}} {
				if ok, err := p.SendNow(bad); ok || err != nil {
					t.Errorf("%+v: %v, %v", bad, ok, err)
				}
			}
		})
	}
}

// TestPeek: Peek returns the packets that Recv returns afterwards.
func TestPeek(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 16)
	g.start(i)
	if _, ok := p.Peek(0); ok {
		t.Error("there is a packet, and none was sent")
	}
	sent := packets(&pair.A, &pair.B, 3, 100)
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{})
	testenv.Wait(t, 2*time.Second, "three packets", func() bool { _, ok := p.Peek(2); return ok })
	first, _ := p.Peek(0)
	if at := p.coming.Load(); at != first.Addr {
		t.Errorf("the first packet lies at %#x, foreseen was %#x", first.Addr, at)
	}
	var seen []umem.Frame
	for n := range sent {
		f, ok := p.Peek(n)
		if seen = append(seen, f); !ok || !bytes.Equal(g.region.Bytes(f), sent[n]) {
			t.Errorf("packet %d: %v", n, ok)
		}
	}
	if _, ok := p.Peek(3); ok {
		t.Error("a fourth packet")
	}
	got := g.receive(p, 3)
	for n := range got {
		if got[n] != seen[n] {
			t.Errorf("%+v was %+v", got[n], seen[n])
		}
	}
	g.worker.Give(got)
}
