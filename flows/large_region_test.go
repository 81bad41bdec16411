package flows

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/umem"
)

// TestLargeRegion captures in the upper part of a region of 5 GiB, where addresses
// take more than 32 bits and io_uring has the memory in its fifth buffer.
func TestLargeRegion(t *testing.T) {
	testenv.Long(t, "a region of 5 GiB takes a while to reserve")
	const size, edge = 5 << 30, 4 << 30
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, size+4<<20)
	for _, layout := range []string{"packed", "slot"} {
		t.Run(layout, func(t *testing.T) {
			l := joined(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
			d := l.open(t, fmt.Sprintf(`
region: {size: 5GiB}
flows:
  - name: cap
    from: {interface: %s, ring: 2048}
    to: {file: %s/cap, layout: %s, segment: {size: 64MiB}, flush: 100ms, durable: 200ms}
`, l.B.Ifname, l.dir, layout), Options{})
			giveBack := takeBelow(t, d.Region(), edge)
			f := d.Flows()[0]
			l.begin(t, d.Start)
			w := observed(t, f)
			frames := l.traffic()
			l.captured(t, f, frames)
			giveBack()
			w.above(t, edge)
			samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames)
			blocksOf(t, l.files(t)...)
		})
	}
}

// takeBelow takes the frames below an address out of the pool until the function
// it returns is called.
func takeBelow(t *testing.T, r *umem.Region, edge uint64) (giveBack func()) {
	t.Helper()
	book := r.NewBook("test")
	hands, err := book.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(t, err)
	frames := make([]umem.Frame, edge/uint64(r.FrameSize()))
	if got := hands.Take(frames); got != len(frames) || frames[got-1].Addr >= edge {
		t.Fatalf("took %d of %d frames, the last at %#x", got, len(frames), frames[got-1].Addr)
	}
	return func() {
		hands.Give(frames)
		hands.Close()
		testenv.Check(t, book.Close())
	}
}

// above checks that packets landed only above edge, and that the disk wrote only from there.
func (w *witness) above(t *testing.T, edge uint64) {
	t.Helper()
	for i, p := range w.landed {
		if p.addr < edge {
			t.Fatalf("packet %d landed at %#x", i, p.addr)
		}
	}
	for i, p := range w.pieces {
		if p.Addr < edge {
			t.Fatalf("piece %d was written from %#x", i, p.Addr)
		}
	}
	if len(w.landed) == 0 || len(w.pieces) == 0 {
		t.Error("nothing was seen: the test shows nothing")
	}
}
