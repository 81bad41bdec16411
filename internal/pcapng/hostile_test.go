package pcapng

import (
	"bytes"
	"errors"
	"testing"
)

func TestMarkWithImpossibleNumbers(t *testing.T) {
	good := Batch{Align: 512, Offset: 1024, Length: 512}
	for name, forge := range map[string]func(*Batch){
		"align":        func(b *Batch) { b.Align = 768 },
		"small align":  func(b *Batch) { b.Align = 256 },
		"large align":  func(b *Batch) { b.Align, b.Offset, b.Length = 128<<10, 0, 128<<10 },
		"length":       func(b *Batch) { b.Length = 516 },
		"empty":        func(b *Batch) { b.Length = 0 },
		"offset":       func(b *Batch) { b.Offset = 1028 },
		"far offset":   func(b *Batch) { b.Offset = 1 << 63 },
		"packet count": func(b *Batch) { b.FirstPacket = 1<<62 + 1 },
	} {
		b := good
		forge(&b)
		var dst [MinMarkLen]byte
		PutBatchHeader(dst[:], &b)
		if _, _, err := parseMark(dst[:]); !errors.Is(err, errMarkAlign) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A file that ends anywhere inside its last batch loses only that batch.
func TestRecoverCutFile(t *testing.T) {
	s := sample(512)
	last := s.batches[4]
	for n := last.offset; n < last.offset+last.length; n += 124 {
		m := &memFile{data: bytes.Clone(s.file[:n])}
		if r := mustRecover(t, m); r.Kept != int64(last.offset) || !samePackets(walked(t, m.data), s.survivors(4)) {
			t.Fatalf("cut at %d: %+v", n, r)
		}
	}
}

// One scan would find a mark inside a batch, and another would not. So Recover rejects the batch.
func TestRecoverRejectsNestedMark(t *testing.T) {
	s := sample(512)
	end := len(s.file)
	s.file = append(s.file, make([]byte, 1024)...)
	b := Batch{Segment: s.id, Align: 512, Sequence: 6, Offset: uint64(end), Length: 1024, FirstPacket: s.next}
	PutBatchHeader(s.file[end:][:512], &b)
	b.Sequence, b.Offset, b.Length = 7, uint64(end+512), 512
	PutBatchHeader(s.file[end+512:][:512], &b)
	if r := mustRecover(t, &memFile{data: s.file}); r.Kept != int64(end) || r.Torn != 1 {
		t.Errorf("%+v", r)
	}
}

// Recover refuses a file whose head libpcap or Wireshark would refuse.
func TestRecoverRefusesStrangeHeads(t *testing.T) {
	section := appendSection(nil, Section{})
	eth := appendInterface(nil, &Interface{LinkType: LinkTypeEthernet})
	for name, c := range map[string]struct {
		blocks [][]byte
		grow   uint32
	}{
		"two sections":    {[][]byte{section, section, eth}, 0},
		"two link types":  {[][]byte{section, eth, appendInterface(nil, &Interface{LinkType: 113})}, 0},
		"two snap lens":   {[][]byte{section, eth, appendInterface(nil, &Interface{LinkType: LinkTypeEthernet, SnapLen: 9})}, 0},
		"huge snap len":   {[][]byte{section, appendInterface(nil, &Interface{SnapLen: 1 << 30})}, 0},
		"no interface":    {[][]byte{section}, 0},
		"no section":      {[][]byte{eth}, 0},
		"padding first":   {[][]byte{section, eth, make([]byte, MinPaddingLen)}, 0},
		"length too long": {[][]byte{section, eth}, 512},
	} {
		file := bytes.Join(c.blocks, nil)
		if name == "padding first" {
			PutPadding(file[len(file)-MinPaddingLen:])
		}
		used := len(file)
		file = append(file, make([]byte, 1024-used)...)
		putMark(file[used:], &Batch{Align: 512, Length: 1024 + c.grow}, kindHead)
		if _, err := Recover(&memFile{data: file}, Options{}); !errors.Is(err, ErrNotSegment) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestDoubtsAreBounded(t *testing.T) {
	var d doubts
	for i := range uint64(maxDoubts + 100) {
		d.add(i+1, 1)
	}
	if len(d.batches) != maxDoubts || d.packets != maxDoubts+100 {
		t.Errorf("%d batches, %d packets", len(d.batches), d.packets)
	}
	if d.settle(maxDoubts - 1); d.packets != 101 {
		t.Errorf("%d packets in doubt, want the 101 of the last entry", d.packets)
	}
	if d.settle(maxDoubts + 100); d.packets != 0 || len(d.batches) != 0 {
		t.Errorf("%d packets in doubt, want none", d.packets)
	}
}
