package pcapng

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawSegment builds random batches of random packets in both layouts.
func drawSegment(t *rapid.T) *segment {
	s := newSegment(rapid.SampledFrom([]uint32{512, 4096}).Draw(t, "align"))
	for range rapid.IntRange(0, 10).Draw(t, "batches") {
		var packets []packet
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 3000), 0, 8).Draw(t, "packets") {
			packets = append(packets, testPacket(rapid.Uint64Range(0, 1<<20).Draw(t, "seed"), n))
		}
		l := rapid.SampledFrom([]layout{slotLayout, packedLayout}).Draw(t, "layout")
		s.add(l, uint64(rapid.IntRange(0, len(s.file)).Draw(t, "durable")), packets...)
	}
	return s
}

// drawDamage damages some batches so that they are no longer good, and returns which.
func drawDamage(t *rapid.T, s *segment) (lost []int) {
	for i, b := range s.batches {
		whole := s.file[b.offset:][:b.length]
		switch rapid.SampledFrom([]string{"none", "none", "never written", "tail missing", "mark missing", "bit in mark"}).Draw(t, "damage") {
		case "none":
			continue
		case "never written":
			clear(whole)
		case "tail missing":
			clear(whole[512*rapid.IntRange(0, b.length/512-1).Draw(t, "sectors"):])
		case "mark missing":
			clear(whole[:MinMarkLen])
		case "bit in mark":
			whole[rapid.IntRange(0, markCRC+3).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		lost = append(lost, i)
	}
	return lost
}

// drawTail appends bytes that a crash can leave after the last batch.
func drawTail(t *rapid.T, file []byte) []byte {
	switch n := rapid.IntRange(0, 20000).Draw(t, "tail"); rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return append(file, make([]byte, n)...)
	case 1:
		return append(file, poisoned(n)...)
	}
	return file
}

// expectedHoles are the runs of lost batches before a good one.
func expectedHoles(s *segment, lost []int) (holes []Hole, kept int64) {
	gone := map[int]bool{}
	for _, i := range lost {
		gone[i] = true
	}
	kept = int64(len(newSegment(s.align).file))
	for i, b := range s.batches {
		if gone[i] {
			continue
		}
		if int64(b.offset) > kept {
			holes = append(holes, Hole{Offset: kept, Length: int64(b.offset) - kept})
		}
		kept = int64(b.offset + b.length)
	}
	return holes, kept
}

// Whichever batches are lost, Recover keeps exactly the others, in order. A second Recover changes nothing.
func TestRecoverProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSegment(t)
		lost := drawDamage(t, s)
		file := drawTail(t, s.file)
		m := &memFile{data: bytes.Clone(file)}
		r, err := Recover(m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !samePackets(walked(t, m.data), s.survivors(lost...)) {
			t.Fatalf("other packets survive than should; lost batches %v, report %+v", lost, r)
		}
		holes, kept := expectedHoles(s, lost)
		if d := cmp.Diff(holes, r.Holes); d != "" || r.Kept != kept || r.Cut != int64(len(file))-kept || int64(len(m.data)) != kept {
			t.Fatalf("kept %d, want %d; holes:\n%s", r.Kept, kept, d)
		}
		checkAgain(t, m, r)
	})
}

func checkAgain(t *rapid.T, m *memFile, first Report) {
	before := bytes.Clone(m.data)
	m.changes = 0
	r, err := Recover(m, Options{})
	if err != nil || !r.Clean || m.changes != 0 || !bytes.Equal(m.data, before) {
		t.Fatalf("second recovery: %+v, %v, %d changes", r, err, m.changes)
	}
	if r.Packets != first.Packets || r.HoleBytes != first.HoleBytes || r.PacketsBeforeHole != first.PacketsBeforeHole || r.MissingPackets != first.MissingPackets {
		t.Fatalf("second recovery sees %+v, the first saw %+v", r, first)
	}
}
