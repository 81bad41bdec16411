package xdp

import (
	"bytes"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestTagsOnCards: packets with one and two VLAN tags arrive with their tags from cards that remove
// tags by default.
func TestTagsOnCards(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab runs this; TestTagsAreKept stands for it on veth")
	for name, pair := range map[string]*testenv.Pair{"igb": labenv.Igb(t), "virtio": labenv.VirtioNet(t)} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, umem.Config{Size: 16 << 20})
			i := g.open(&pair.B, Config{Direction: Receive, RingSize: 512, Promiscuous: true})
			for _, p := range i.Ports() {
				g.supply(p, 200)
				testenv.Must(t, p.Kick())
			}
			g.start(i)
			labenv.Carry(t, pair)
			var sent [][]byte
			for n, tags := range []string{"", "\x81\x00\x00\x05", "\x88\xa8\x20\x07\x81\x00\x00\x05"} {
				p := packet(&pair.A, &pair.B, uint32(n), 200)
				sent = append(sent, append(append(bytes.Clone(p[:12]), tags...), p[12:]...))
			}
			testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{Rate: 500})
			for n, f := range g.receiveAny(i, len(sent)) {
				if !bytes.Equal(g.region.Bytes(f), sent[n]) {
					t.Errorf("packet %d came as %x, and was sent as %x", n, g.region.Bytes(f), sent[n])
				}
			}
		})
	}
}
