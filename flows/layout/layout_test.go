package layout

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	deskFrames = 300
	deskPoison = 0xcc // in every byte of a frame outside packets, and in no packet
)

// desk is memory and a layout without a device. It puts sealed batches where a disk would.
type desk struct {
	*rapid.T
	region *umem.Region
	hands  *umem.Holder
	layout Layout
	spare  *umem.FreeList
	copied Copies
	snap   SnapLen
	random *rand.Rand

	id       pcapng.SegmentID
	align    uint32
	file     []byte
	sequence uint64
	packets  uint64
	flying   [][]umem.Frame // sealed and not freed
	landed   []umem.Frame   // received and not used yet
	want     [][]byte       // packets in the order received
}

// newDesk returns a desk with a region that the caller closes.
func newDesk(t *rapid.T, region *umem.Region, kind string) *desk {
	book := region.NewBook("desk")
	hands, err := book.NewHolder(umem.OwnerWorker, "desk")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, region: region, hands: hands, spare: &umem.FreeList{}, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
	t.Cleanup(func() { hands.Close(); _ = book.Close() })
	fs := make([]umem.Frame, deskFrames)
	if hands.Take(fs) != len(fs) {
		t.Fatal("the region has too few frames")
	}
	d.spare.Push(fs...)
	d.align = pcapng.MinAlign
	d.snap.Max = rapid.SampledFrom([]uint32{0, 0, 1, 60, 3540, 3556, 5000, 9018}).Draw(t, "snaplen")
	c := Config{Region: region, Free: d.spare, Copies: &d.copied, SnapLen: &d.snap}
	if kind == "slot" {
		pieces := rapid.SampledFrom([]int{20, 64, 256}).Draw(t, "pieces")
		c.Limit = rapid.SampledFrom([]uint64{64 << 10, 256 << 10}).Draw(t, "limit")
		d.layout = NewInPlace(c, pieces, c.Limit)
	} else {
		extents := make([]umem.Frame, 3)
		if hands.TakeExtents(extents) != len(extents) {
			t.Fatal("the region has too few extents")
		}
		d.align = rapid.SampledFrom([]uint32{512, 4096, 65536}).Draw(t, "align")
		c.Limit = rapid.SampledFrom([]uint64{128 << 10, 256 << 10}).Draw(t, "limit")
		d.layout = NewPacked(c, d.align, uint32(c.Limit), extents)
	}
	d.begin()
	return d
}

// begin writes the segment's head.
func (d *desk) begin() {
	d.id = pcapng.SegmentID{1, 2, 3}
	head, err := pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{{Name: "a", LinkType: 1}, {Name: "b", LinkType: 1}}, pcapng.Segment{ID: d.id, Align: d.align})
	if err != nil {
		d.Fatal(err)
	}
	d.file = head
}

// land receives a packet of length bytes, at the given offset of each of its frames.
func (d *desk) land(length, offset uint64) bool {
	packet := make([]byte, length)
	for i := range packet {
		packet[i] = byte(d.random.IntN(deskPoison))
	}
	room := uint64(d.region.FrameSize()) - offset
	fs := make([]umem.Frame, (length+room-1)/room)
	if !d.spare.Pop(fs) {
		return false
	}
	rest := packet
	for i := range fs {
		start, size := d.region.Start(fs[i])
		whole := d.region.At(start, size)
		for k := range whole {
			whole[k] = deskPoison
		}
		n := copy(whole[offset:], rest)
		rest = rest[n:]
		fs[i] = umem.Frame{Addr: start + offset, Len: uint32(n), Options: umem.More}
		side := d.region.Side(fs[i])
		side.Stamp, side.Clock = uint64(len(d.want))+1, clockOf(len(d.want))
	}
	fs[len(fs)-1].Options = 0
	d.landed = append(d.landed, fs...)
	d.want = append(d.want, packet)
	return true
}

// clockOf returns the clock that stamps a packet.
func clockOf(packet int) umem.Clock { return umem.Clock(packet / 3 % 2) }

// record gives the received packets to the layout, and writes batches as they fill.
func (d *desk) record() {
	for len(d.landed) > 0 {
		n := d.layout.Add(0, d.landed)
		d.landed = d.landed[n:]
		d.conserved()
		if n > 0 {
			continue
		}
		if d.layout.Size() == 0 { // memory is short: free some, as the disk does
			if len(d.flying) == 0 {
				d.Fatalf("an empty layout takes no packet of %d frames, with %d spare", len(d.landed), d.spare.Len())
			}
			d.free()
			continue
		}
		d.write()
	}
}

// write seals the open batch and puts it at its place. Sometimes it first seals it for another
// place.
func (d *desk) write() {
	size := d.layout.Size()
	if size == 0 {
		return
	}
	if size%uint64(d.align) != 0 {
		d.Fatalf("a batch of %d bytes where %d is the alignment", size, d.align)
	}
	packets, _ := d.layout.Count()
	b := pcapng.Batch{Segment: d.id, Align: d.align, Sequence: d.sequence + 1, Offset: uint64(len(d.file)), FirstPacket: d.packets}
	if d.random.IntN(3) == 0 {
		elsewhere := b
		elsewhere.Sequence, elsewhere.Offset = 1, 1<<40
		d.layout.Seal(elsewhere)
	}
	message := d.layout.Seal(b)
	before := len(d.file)
	for i, f := range message {
		if f.Continues() != (i < len(message)-1) {
			d.Fatalf("piece %d of %d: %+v", i, len(message), f)
		}
		if start, room := d.region.Start(f); f.Addr+uint64(f.Len) > start+room {
			d.Fatalf("piece %+v leaves its frame", f)
		}
		if f.Addr%512 != 0 || f.Len%512 != 0 {
			d.Fatalf("piece %+v is not aligned", f)
		}
		d.file = append(d.file, d.region.Bytes(f)...)
	}
	if uint64(len(d.file)-before) != size {
		d.Fatalf("%d bytes were sealed, and size says %d", len(d.file)-before, size)
	}
	d.flying = append(d.flying, append([]umem.Frame(nil), message...))
	d.sequence++
	d.packets += uint64(packets)
	d.layout.Reset()
	d.conserved()
}

// free frees one of the messages in flight.
func (d *desk) free() {
	if len(d.flying) == 0 {
		return
	}
	i := d.random.IntN(len(d.flying))
	d.layout.Free(d.flying[i])
	d.flying = append(d.flying[:i], d.flying[i+1:]...)
	d.conserved()
}

// conserved checks that every frame is in exactly one place.
func (d *desk) conserved() {
	seen := make(map[uint64]string)
	note := func(where string, fs []umem.Frame) {
		for _, f := range fs {
			start, _ := d.region.Start(f)
			if other, ok := seen[start]; ok {
				d.Fatalf("frame %#x is in %s and in %s", start, other, where)
			}
			seen[start] = where
		}
	}
	note("spare", d.spare.Top(d.spare.Len()))
	note("landed", d.landed)
	for _, m := range d.flying {
		note("flying", m)
	}
	want := deskFrames
	switch l := d.layout.(type) {
	case *InPlace:
		note("chain", l.chain)
	case *Packed:
		note("extents", l.extents.Top(l.extents.Len()))
		want += 3
		if l.out != nil {
			note("open", []umem.Frame{l.extent})
		}
	}
	if len(seen) != want {
		d.Fatalf("%d frames of %d are left", len(seen), want)
	}
}

// check compares the file with the packets that landed.
func (d *desk) check() {
	got, cut := 0, uint64(0)
	packet := func(p pcapng.Packet) error {
		if got == len(d.want) || !bytes.Equal(p.Data, d.kept(got)) || p.OrigLen != uint32(len(d.want[got])) || p.Time != uint64(got)+1 || p.Interface != uint32(clockOf(got)) {
			return fmt.Errorf("packet %d of %d is not what landed", got, len(d.want))
		}
		cut += uint64(p.OrigLen) - uint64(len(p.Data))
		got++
		return nil
	}
	report, err := pcapng.Read(bytes.NewReader(d.file), int64(len(d.file)), pcapng.Options{}, func(_ pcapng.Batch, data []byte) error {
		return pcapng.EachPacket(data, packet)
	})
	if err != nil || !report.Clean || got != len(d.want) {
		d.Fatalf("%d packets of %d: %v, %v", got, len(d.want), report, err)
	}
	if n := d.snap.Omitted.Load(); n != cut {
		d.Fatalf("%d bytes are left out, and %d counted", cut, n)
	}
	if at := bytes.Index(d.file, bytes.Repeat([]byte{deskPoison}, 4)); at >= 0 {
		d.Fatalf("what was in the frames before reached the file at %d", at)
	}
}

// kept returns the bytes of a packet that the file has.
func (d *desk) kept(packet int) []byte {
	all := d.want[packet]
	return all[:d.snap.keep(uint32(len(all)))]
}

// recovered checks that recovery accepts the whole file, and that another reader reads it.
func (d *desk) recovered(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, d.file, 0o600); err != nil {
		d.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		d.Fatal(err)
	}
	defer f.Close()
	r, err := pcapng.Recover(f, pcapng.Options{DryRun: true})
	if err != nil || !r.Clean || r.Batches != d.sequence || r.Packets != uint64(len(d.want)) {
		d.Fatalf("recovery finds %s: %v", r.String(), err)
	}
	var want [][]byte
	for i := range d.want {
		want = append(want, d.kept(i))
	}
	got, err := testenv.ReadCapture(t, name)
	if err != nil || len(got) != len(want) {
		d.Fatalf("the other reader has %d packets of %d: %v", len(got), len(want), err)
	}
	for i := range got {
		if !bytes.Equal(got[i].Data, want[i]) {
			d.Fatalf("the other reader has another packet %d", i)
		}
	}
}

// steps returns the random operations on a layout.
func (d *desk) steps(offsets []uint64) map[string]func(*rapid.T) {
	land := func(length uint64) func(*rapid.T) {
		return func(t *rapid.T) {
			d.T = t
			n := length
			if n == 0 {
				n = rapid.Uint64Range(1, 9018).Draw(t, "length")
			}
			if d.land(n, rapid.SampledFrom(offsets).Draw(t, "offset")) {
				d.record()
			}
		}
	}
	return map[string]func(*rapid.T){
		"any": land(0), "any more": land(0), "shortest": land(1), "small": land(60), "frame": land(3556), "tight": land(3540), "longest": land(9018),
		"write": func(t *rapid.T) { d.T = t; d.write() },
		"free":  func(t *rapid.T) { d.T = t; d.free() },
		"statistics": func(t *rapid.T) {
			d.T = t
			if d.layout.Size() == 0 {
				d.layout.Note(pcapng.AppendStatistics(nil, pcapng.Statistics{Time: 5, Received: pcapng.Unknown, Delivered: 7}))
				d.conserved()
			}
		},
	}
}

// TestLayouts: the file has all packets after random operations on each layout.
func TestLayouts(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary, FrameSize: 4096, ExtentSize: 256 << 10, Extents: 3})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, region.Close()) })
	for _, c := range []struct {
		kind    string
		offsets []uint64
	}{
		{"slot", []uint64{umem.PacketHeadroom + InPlaceHeadroom}},
		{"slot", []uint64{umem.PacketHeadroom + InPlaceHeadroom, umem.PacketHeadroom, 0, 28, 2000}}, // also offsets where no record can begin
		{"packed", []uint64{umem.PacketHeadroom, 0, 1}},
	} {
		t.Run(fmt.Sprint(c.kind, " ", len(c.offsets)), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				d := newDesk(rt, region, c.kind)
				rt.Repeat(d.steps(c.offsets))
				d.T = rt
				d.write()
				d.check()
				d.recovered(t)
				for len(d.flying) > 0 {
					d.free()
				}
			})
		})
	}
}

// TestSlotCopiesNothing: the slot layout does not copy a packet whose kept bytes are in one frame.
func TestSlotCopiesNothing(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary, FrameSize: 4096, ExtentSize: 256 << 10, Extents: 3})
	testenv.Must(t, err)
	defer region.Close()
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t, region, "slot")
		longest := uint64(3556)
		if most := d.snap.Max; most > 0 && most <= 3556 {
			longest = 9018
		}
		for range 30 {
			if !d.land(rapid.Uint64Range(1, longest).Draw(t, "length"), umem.PacketHeadroom+InPlaceHeadroom) {
				break
			}
			at := d.landed[0].Addr
			d.record()
			found := false
			for _, f := range d.layout.(*InPlace).chain {
				found = found || f.Addr == at-pcapng.PacketHeaderLen
			}
			if !found {
				t.Fatalf("the packet at %#x is not in the batch", at)
			}
		}
		if n := d.copied.MultiFrame.Load() + d.copied.Unaligned.Load(); n > 0 {
			t.Fatalf("%d bytes were copied", n)
		}
		d.write()
		d.check()
	})
}
