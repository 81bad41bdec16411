package ring

import (
	"bytes"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// disk is a device in memory.
type disk struct {
	b     []byte
	syncs int
}

func (d *disk) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(d.b).ReadAt(p, off) }
func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	return copy(d.b[off:off+int64(len(p))], p), nil
}
func (d *disk) Sync() error { d.syncs++; return nil }

const deviceSize = 6<<20 + 512

// made returns a ring of four slots of 1 MiB.
func made(t testing.TB) (*disk, Ring) {
	t.Helper()
	d := &disk{b: bytes.Repeat([]byte{0xa5}, deviceSize)}
	r, err := Create(d, deviceSize, 1<<20)
	testenv.Must(t, err)
	return d, r
}

// put writes a segment of batches with two packets each into its slot, and closes it if asked to. The first packet
// of the segment has the number first.
func put(t testing.TB, d *disk, r Ring, generation, first uint64, batches int, end bool) (at []int) {
	t.Helper()
	seg := pcapng.Segment{ID: r.SegmentID(generation), Align: 512, FirstPacket: Base(generation)}
	out, err := pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{{Name: "a", LinkType: 1}}, seg)
	testenv.Must(t, err)
	b := pcapng.Batch{Segment: seg.ID, Align: 512, Packets: 2, Length: 2048, FirstPacket: first}
	for range batches {
		b.Sequence++
		b.Offset = uint64(len(out))
		at = append(at, len(out))
		out = append(out, make([]byte, pcapng.MinMarkLen)...)
		for i := range uint64(2) {
			out = appendPacket(out, b.FirstPacket+i)
		}
		pad := len(out)
		out = append(out, make([]byte, int(b.Offset)+int(b.Length)-pad)...)
		pcapng.PutPadding(out[pad:])
		pcapng.PutBatchHeader(out[b.Offset:][:pcapng.MinMarkLen], &b)
		b.FirstPacket += 2
	}
	if end {
		b.Sequence++
		b.Offset, b.Durable, b.Length, b.Packets = uint64(len(out)), uint64(len(out)), 512, 0
		out = append(out, make([]byte, 512)...)
		pcapng.PutEnd(out[b.Offset:], &b)
	}
	copy(d.b[r.Offset(generation):], out)
	return at
}

// appendPacket appends a packet of 600 bytes that hold its number.
func appendPacket(out []byte, number uint64) []byte {
	const n = 600
	block := pcapng.PacketBlockLen(n+pcapng.NumberLen, 4)
	at := len(out)
	out = append(out, make([]byte, block)...)
	pcapng.PutPacketHeader(out[at:], 0, number, n, n, block)
	le.PutUint64(out[at+pcapng.PacketHeaderLen:], number)
	pcapng.PutNumberedTail(out[at+pcapng.PacketHeaderLen+n:], n, block, number)
	return out
}

// numbers returns the numbers in the packets of a generation.
func numbers(t testing.TB, d *disk, r Ring, generation uint64) (all []uint64) {
	t.Helper()
	_, err := r.Read(d, generation, func(_ pcapng.Batch, data []byte) error {
		return pcapng.EachPacket(data, func(p pcapng.Packet) error {
			all = append(all, le.Uint64(p.Data))
			return nil
		})
	})
	testenv.Must(t, err)
	return all
}

func TestRingIsFoundAgain(t *testing.T) {
	d, r := made(t)
	found, err := Find(d, deviceSize)
	if err != nil || found.Ring != r || found.Damage != nil || r.Slots != 4 {
		t.Fatalf("%+v, %v; made %+v", found, err, r)
	}
	if found, err = Find(d, deviceSize-1); !errors.Is(err, ErrDamaged) {
		t.Errorf("on a smaller device: %+v, %v", found, err)
	}
	d.b = append(d.b, make([]byte, 1<<20)...)
	if found, err = Find(d, uint64(len(d.b))); err != nil || found.Ring != r || found.Damage != nil {
		t.Errorf("on a larger device: %+v, %v", found, err)
	}
}

// TestSuperblockIsMended: Mend repairs the superblock or its copy. If both are damaged, Find
// returns ErrDamaged.
func TestSuperblockIsMended(t *testing.T) {
	for name, places := range map[string][]int{"superblock": {40}, "copy": {deviceSize - 4}, "both": {12, deviceSize - 4000}} {
		d, r := made(t)
		whole := bytes.Clone(d.b)
		for _, at := range places {
			d.b[at] ^= 1
		}
		found, err := Find(d, deviceSize)
		if name == "both" {
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "checksum") {
				t.Errorf("both: %v", err)
			}
			continue
		}
		if err != nil || found.Ring != r || found.Damage == nil || !strings.Contains(found.Damage.Error(), name) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
		if err := found.Mend(d); err != nil || !bytes.Equal(d.b, whole) {
			t.Errorf("%s: not mended: %v", name, err)
		}
	}
	d, r := made(t)
	clear(d.b[:SuperblockLen])
	if found, err := Find(d, deviceSize); err != nil || found.Ring != r || found.Damage == nil {
		t.Errorf("wiped: %+v, %v", found, err)
	}
	clear(d.b[deviceSize-SuperblockLen:])
	if _, err := Find(d, deviceSize); !errors.Is(err, ErrNone) {
		t.Errorf("both wiped: %v", err)
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		device, segment uint64
		says            string
	}{
		{4 << 20, 1 << 20, "larger device"},
		{100 << 20, 64 << 20, "33554432 bytes at most"},
		{1 << 40, 0, "from 1"},
		{1 << 63, 1 << 20, "at most"},
		{1 << 62, 4 << 40, "from 1"},
	} {
		if r, err := plan(c.device, c.segment); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
}

// TestGeometry: slots lie between the ends of the device and do not overlap, and ids have their generation.
func TestGeometry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		device := rapid.Uint64Range(5<<20, 1<<62).Draw(t, "device")
		segment := rapid.Uint64Range(1, min(MaxSlot, (device-2<<20)/3&^(Unit-1))).Draw(t, "segment")
		r, err := plan(device, segment)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decode(r.encode(), device); err != nil || again != r {
			t.Fatalf("%+v is read as %+v, %v", r, again, err)
		}
		g := rapid.Uint64Range(0, maxGeneration-1).Draw(t, "generation")
		at := r.Offset(g)
		if at%Unit != 0 || at < margin || at+r.Size > device-margin || r.Size < segment || r.Offset(g+r.Slots) != at {
			t.Fatalf("%+v: generation %d at %d", r, g, at)
		}
		if next := r.Offset(g + 1); next != at+r.Size && next != margin {
			t.Fatalf("%d follows %d", next, at)
		}
		if back, ok := r.generation(r.SegmentID(g)); !ok || back != g {
			t.Fatalf("generation %d is read as %d", g, back)
		}
		if n := Base(g+1) - Base(g); n != 1<<countBits && Base(g+1) != 0 || Base(g)+MaxSlot > 1<<62 {
			t.Fatalf("numbers from %d to %d", Base(g), Base(g+1))
		}
	})
}

// TestGenerations: Generations returns the newest segments in order, and none of another ring.
func TestGenerations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.Uint64Range(3, 9).Draw(t, "slots")
		newest := rapid.Uint64Range(0, 1<<40).Draw(t, "newest")
		var all []uint64
		for i := range min(slots, newest+1) {
			all = append(all, newest-i)
		}
		got := latest(rapid.Permutation(all).Draw(t, "order"), slots)
		for i, g := range got {
			if want := newest + 1 - uint64(len(got)-i); g != want {
				t.Fatalf("%d at %d, not %d", g, i, want)
			}
		}
	})
	d, r := made(t)
	for g := uint64(3); g <= 9; g++ {
		put(t, d, r, g, Base(g), 3, true)
	}
	other := r
	other.ID[0]++
	put(t, d, other, 8, 0, 1, true)
	got, err := r.Generations(d)
	if err != nil || len(got) != 3 || got[0] != 6 || got[2] != 9 {
		t.Fatalf("%v, %v", got, err)
	}
	if n := numbers(t, d, r, 7); len(n) != 6 || n[0] != Base(7) || n[5] != Base(7)+5 {
		t.Errorf("generation 7 has %v", n)
	}
	if _, err := r.Read(d, 4, nil); !errors.Is(err, ErrOverwritten) {
		t.Errorf("generation 4: %v", err)
	}
}

// TestOldBlocksUnderTornBatch: a batch is rejected if only its first sector is new, and the rest belongs to
// an older, otherwise well-formed segment.
func TestOldBlocksUnderTornBatch(t *testing.T) {
	for torn := range 3 {
		d, r := made(t)
		at := put(t, d, r, 2, Base(2), 3, false)
		old := bytes.Clone(d.b[r.Offset(2):][:r.Size])
		put(t, d, r, 6, Base(6), 3, false)
		slot := d.b[r.Offset(6):][:r.Size]
		copy(slot[at[torn]+512:at[torn]+2048], old[at[torn]+512:])
		relaxed, err := pcapng.Read(bytes.NewReader(slot), int64(r.Size), pcapng.Options{}, func(pcapng.Batch, []byte) error { return nil })
		if err != nil || relaxed.Torn != 0 || relaxed.Batches != 3 {
			t.Fatalf("without numbers nothing should be seen: %+v, %v", relaxed, err)
		}
		for _, n := range numbers(t, d, r, 6) {
			if n < Base(6) || (n-Base(6))/2 == uint64(torn) {
				t.Errorf("torn batch %d: packet %d", torn, n-Base(6))
			}
		}
		report, err := pcapng.Recover(r.Slot(d, 6), pcapng.Options{Numbered: true})
		if err != nil || report.Torn != 1 || report.Packets != 4 {
			t.Errorf("recovery: %+v, %v", report, err)
		}
		if n := len(numbers(t, d, r, 6)); n != 4 {
			t.Errorf("after recovery %d packets", n)
		}
	}
}

// TestClosed: Closed distinguishes segments that were ended from others.
func TestClosed(t *testing.T) {
	d, r := made(t)
	put(t, d, r, 5, Base(5), 3, true)
	at := put(t, d, r, 6, Base(6), 3, false)
	put(t, d, r, 7, Base(7), 0, true)
	for g, want := range map[uint64]pcapng.Closing{5: {Closed: true, Batches: 3}, 6: {Batches: 3}, 7: {Closed: true}} {
		got, err := pcapng.Closed(r.Slot(d, g), int64(r.Size))
		if err != nil || got.Closed != want.Closed || got.Batches != want.Batches {
			t.Errorf("generation %d: %+v, %v", g, got, err)
		}
	}
	if _, err := pcapng.Closed(r.Slot(d, 8), int64(r.Size)); !errors.Is(err, pcapng.ErrNotSegment) {
		t.Errorf("an empty slot: %v", err)
	}
	d.b[int(r.Offset(5))+at[1]] ^= 1
	if got, err := pcapng.Closed(r.Slot(d, 5), int64(r.Size)); err != nil || got.Closed {
		t.Errorf("with a hole: %+v, %v", got, err)
	}
}

// TestEndOutlastsBatches: if the last batches of a complete segment are damaged, recovery keeps its end mark,
// which shows that they are missing.
func TestEndOutlastsBatches(t *testing.T) {
	for lost := range 4 {
		d, r := made(t)
		at := put(t, d, r, 5, Base(5), 3, true)
		for _, place := range at[3-lost:] {
			d.b[int(r.Offset(5))+place+17] ^= 1
		}
		for range 2 {
			got, err := pcapng.Recover(r.Slot(d, 5), pcapng.Options{Numbered: true})
			if err != nil || !got.Ended || got.Batches != uint64(3-lost) || got.MissingBatches != uint64(lost) || got.DurableLost() != (lost > 0) {
				t.Errorf("%d lost: %+v, %v", lost, got, err)
			}
			if c, err := pcapng.Closed(r.Slot(d, 5), int64(r.Size)); err != nil || !c.Closed || c.Batches != 3 {
				t.Errorf("%d lost: %+v, %v", lost, c, err)
			}
		}
		if n := len(numbers(t, d, r, 5)); n != 2*(3-lost) {
			t.Errorf("%d lost: %d packets", lost, n)
		}
	}
}

// TestOverwrittenWhileRead: Read returns ErrOverwritten if a new segment begins in the slot after
// the first batch.
func TestOverwrittenWhileRead(t *testing.T) {
	d, r := made(t)
	put(t, d, r, 5, Base(5), 3, true)
	batches := 0
	_, err := r.Read(d, 5, func(pcapng.Batch, []byte) error {
		batches++
		put(t, d, r, 9, Base(9), 0, false)
		return nil
	})
	if batches != 1 || !errors.Is(err, ErrOverwritten) {
		t.Errorf("%d batches, %v", batches, err)
	}
}

func TestSlotEnds(t *testing.T) {
	d, r := made(t)
	s := r.Slot(d, 3)
	if _, err := s.WriteAt(make([]byte, 2), int64(r.Size)-1); err == nil {
		t.Error("it was written beyond the slot")
	}
	if n, err := s.ReadAt(make([]byte, 2), int64(r.Size)-1); n != 1 || err == nil {
		t.Errorf("%d bytes were read, %v", n, err)
	}
}

// mendChecksums gives every aligned mark a correct checksum. Otherwise the fuzzer would never get
// past it.
func mendChecksums(slot []byte) {
	for at := 0; at+pcapng.MinMarkLen <= len(slot); at += 4 {
		if le.Uint32(slot[at:]) == pcapng.TypeMark && string(slot[at+12:at+16]) == "UFDM" {
			le.PutUint32(slot[at+80:], crc32.Checksum(slot[at:at+80], castagnoli))
		}
	}
}

// FuzzRing: for any contents of a device, reading ends, and packets have the numbers that follow from their
// batch's mark.
func FuzzRing(f *testing.F) {
	d, r := made(f)
	at := put(f, d, r, 5, Base(5), 2, true)
	put(f, d, r, 6, Base(6), 2, false)
	end := at[1] + 4096
	f.Add(d.b[:SuperblockLen], d.b[r.Offset(5):][:end], uint16(0))
	f.Add(d.b[:SuperblockLen], d.b[r.Offset(6):][:end], uint16(513))
	f.Fuzz(func(t *testing.T, super, slot []byte, flip uint16) {
		d := &disk{b: make([]byte, deviceSize)}
		copy(d.b[:SuperblockLen], super)
		slot = bytes.Clone(slot)
		mendChecksums(slot)
		for s := range uint64(2) {
			copy(d.b[r.Offset(s+1):][:r.Size], slot)
		}
		d.b[r.Offset(2)+uint64(flip)] ^= 1
		found, err := Find(d, deviceSize)
		if err != nil {
			found.Ring = r
		}
		testenv.Must(t, found.check(deviceSize))
		all, err := found.Generations(d)
		testenv.Must(t, err)
		for _, g := range all {
			report, err := found.Read(d, g, func(b pcapng.Batch, data []byte) error {
				n := uint32(0)
				err := pcapng.EachPacket(data, func(pcapng.Packet) error { n++; return nil })
				if n != b.Packets || len(data) != int(b.Length) {
					t.Fatalf("%d packets in %+v", n, b)
				}
				return err
			})
			testenv.Must(t, err)
			mended, err := pcapng.Recover(found.Slot(d, g), pcapng.Options{Numbered: true})
			if err != nil || mended.Packets != report.Packets {
				t.Fatalf("read %+v, recovered %+v: %v", report, mended, err)
			}
		}
	})
}
