package flows

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestCardToDisk captures from cards to the NVMe disk, as a block device and by commands to its node. If the
// kernel has zero copy on the card, a packet of one frame is written from where the card put it, without a
// copy.
func TestCardToDisk(t *testing.T) {
	labenv.Guest(t)
	for _, c := range []struct {
		cards        string
		take         func(testing.TB) *testenv.Pair
		device, mode string
		long         bool
	}{
		{"igb", labenv.Igb, labenv.DiskPassthrough, "prefer", false},
		{"igb", labenv.Igb, labenv.Disk, "prefer", true},
		{"igb", labenv.Igb, labenv.DiskPassthrough, "copy", true},
		{"virtio", labenv.VirtioNet, labenv.Disk, "prefer", true},
	} {
		t.Run(c.cards+" "+c.mode+c.device, func(t *testing.T) {
			if c.long {
				testenv.Long(t, "make lab runs this; commands to the node stand for it")
			}
			cardToDisk(t, c.take(t), c.device, c.mode)
		})
	}
}

func cardToDisk(t *testing.T, pair *testenv.Pair, device, mode string) {
	testenv.HugePages(t, 66<<20)
	l := &lab{Pair: pair, dir: t.TempDir()}
	if pair.B.Ifname == "virtio1" { // of these only A grants zero copy
		l.A, l.B = l.B, l.A
	}
	zero := mode == "prefer" && labenv.Kernel(t) == labenv.Linux7
	before := granted
	granted.zeroCopy = zero
	t.Cleanup(func() { granted = before })
	f := l.start(t, fmt.Sprintf(`
region: {size: 64MiB}
flows:
  - name: cap
    from: {interface: %s, ring: 1024, zero_copy: %s}
    to: {device: %s, force: true, layout: slot, segment: {size: 32MiB}, flush: 100ms, durable: 200ms}
`, l.B.Ifname, mode, device), Options{}).Flows()[0]
	w := observed(t, f)
	w.write = true
	labenv.Carry(t, pair)
	var frames [][]byte
	for size := 512; size <= 1514; size += 3 {
		frames = append(frames, testenv.UDP(&l.A, &l.B, 9, uint64(size), size))
	}
	s := l.captured(t, f, frames)
	if s.ZeroCopy != zero || mode == "prefer" && (s.WhyNot == "") != zero {
		t.Errorf("zero copy: %v, %q", s.ZeroCopy, s.WhyNot)
	}
	for reason, n := range s.CopiedBytes {
		if n != 0 {
			t.Errorf("copied %d bytes: %s", n, reason)
		}
	}
	for reason, n := range s.KernelBytes {
		if zero && n != 0 {
			t.Errorf("the kernel copied %d bytes: %s", n, reason)
		}
	}
	if n := len(w.passed(t)); n != len(frames) {
		t.Fatalf("%d packets landed, %d were sent", n, len(frames))
	}
	all := captures.Packets(t, captures.ExportRing(t, labenv.Disk)) // also of earlier runs
	if len(all) < len(frames) {
		t.Fatalf("%d packets are on the disk, %d were sent", len(all), len(frames))
	}
	samePackets(t, "the disk", all[len(all)-len(frames):], stampedWith(frames))
}
