package pcapng

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestRecoverCleanFileIsLeftAlone(t *testing.T) {
	for _, align := range []uint32{512, 4096, 65536} {
		s := sample(align)
		m := &memFile{data: bytes.Clone(s.file)}
		r := mustRecover(t, m)
		if !r.Clean || r.Packets != 20 || r.Batches != 5 || r.LastPacket != 1019 || r.HoleCount != 0 || m.changes != 0 {
			t.Errorf("align %d: %+v, %d changes", align, r, m.changes)
		}
		if r.DurableLost() || r.Doubtful != 8 {
			t.Errorf("align %d: durable lost %v, %d doubtful, want false, 8", align, r.DurableLost(), r.Doubtful)
		}
		checkIndependently(t, m.data, s.survivors())
	}
}

// The usual crash: one batch was never written, one is torn in its middle, the last one is torn, and the tail
// is preallocated.
func TestRecoverAfterCrash(t *testing.T) {
	for _, align := range []uint32{512, 4096} {
		s := sample(align)
		s.wipe(1, 0)
		s.wipe(3, 512)
		s.add(slotLayout, uint64(s.batches[2].offset), testPacket(99, 1000))
		s.add(slotLayout, 0, testPacket(100, 1000))
		s.wipe(6, 1024)
		size := len(s.file) + 1<<20
		m := &memFile{data: append(bytes.Clone(s.file), make([]byte, 1<<20)...)}
		got := mustRecover(t, m)
		b := s.batches
		want := Report{
			Segment: s.id, Align: align, Interfaces: 3, FirstPacket: 1000, LastPacket: 1020,
			Size: int64(size), Kept: int64(b[6].offset), Cut: int64(size - b[6].offset),
			Batches: 4, Packets: 13, Torn: 2, MissingBatches: 2, MissingPackets: 8,
			Holes:     []Hole{{int64(b[1].offset), int64(b[1].length), false}, {int64(b[3].offset), int64(b[3].length), false}},
			HoleCount: 2, HoleBytes: int64(b[1].length + b[3].length), PacketsBeforeHole: 4,
			Durable: uint64(b[2].offset + b[2].length), Doubtful: 5,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("align %d: report (-want +got):\n%s", align, d)
		}
		if !got.DurableLost() {
			t.Error("a hole below the durable offset was not noticed")
		}
		checkIndependently(t, m.data, s.survivors(1, 3, 6))
	}
}

// Recover divides holes that are longer than a bridge into several, which every reader accepts.
func TestRecoverLongHole(t *testing.T) {
	s := newSegment(4096)
	s.add(packedLayout, 0, testPacket(1, 100))
	var many []packet
	for i := range uint64(600) {
		many = append(many, testPacket(i, 1514))
	}
	s.add(packedLayout, 0, many...)
	s.add(packedLayout, 0, testPacket(2, 100))
	s.wipe(1, 0)
	m := &memFile{data: s.file}
	r := mustRecover(t, m)
	if want := s.batches[1].length; r.HoleCount != 1 || r.HoleBytes != int64(want) || want < 3*maxBridge {
		t.Errorf("%+v", r)
	}
	checkIndependently(t, m.data, s.survivors(1))
	again := mustRecover(t, m)
	if !again.Clean || again.Packets != 2 || !again.Holes[0].Bridged || len(again.Holes) != 1 {
		t.Errorf("second recovery: %+v", again)
	}
}

func TestRecoverRefuses(t *testing.T) {
	stream, err := AppendStreamHead(nil, testSection, testInterfaces)
	testenv.Must(t, err)
	whole := sample(512).file
	torn := bytes.Clone(whole)
	torn[len(stream)+markSequence] ^= 1
	for name, data := range map[string][]byte{
		"empty":        {},
		"zeros":        make([]byte, 1<<20),
		"text":         []byte("#!/bin/sh\nexec something else entirely\n"),
		"classic pcap": unhex(t, "d4c3b2a1 02000400 00000000 00000000 00000400 01000000"),
		"stream":       appendPacket(bytes.Clone(stream), testPacket(1, 100), 4),
		"head only":    stream,
		"cut head":     whole[:len(stream)+40],
		"torn head":    torn,
		"big endian":   unhex(t, "0a0d0d0a 0000001c 1a2b3c4d 00010000 ffffffffffffffff 0000001c"),
	} {
		m := &memFile{data: bytes.Clone(data)}
		if _, err := Recover(m, Options{}); !errors.Is(err, ErrNotSegment) {
			t.Errorf("%s: got %v, want ErrNotSegment", name, err)
		}
		if m.changes != 0 || !bytes.Equal(m.data, data) {
			t.Errorf("%s: the file was touched", name)
		}
	}
}

// Recover rejects a block that looks like a batch, but not one of this place in this segment.
func TestRecoverRejectsImpostors(t *testing.T) {
	for name, forge := range map[string]func(s *segment, b *Batch){
		"another segment":  func(_ *segment, b *Batch) { b.Segment[5]++ },
		"another offset":   func(s *segment, b *Batch) { b.Offset += uint64(s.align) },
		"old sequence":     func(_ *segment, b *Batch) { b.Sequence = 2 },
		"old packets":      func(_ *segment, b *Batch) { b.FirstPacket-- },
		"packet count":     func(_ *segment, b *Batch) { b.Packets++ },
		"longer":           func(s *segment, b *Batch) { b.Length += s.align },
		"shorter":          func(s *segment, b *Batch) { b.Length -= s.align },
		"giant":            func(_ *segment, b *Batch) { b.Length = -b.Align },
		"no length":        func(_ *segment, b *Batch) { b.Length = 0 },
		"alignment":        func(_ *segment, b *Batch) { b.Align *= 2 },
		"no alignment":     func(_ *segment, b *Batch) { b.Align = 0 },
		"numbers overflow": func(_ *segment, b *Batch) { b.FirstPacket = ^uint64(0) },
	} {
		s := sample(512)
		b := s.batch(2)
		b.FirstPacket = 1008
		forge(s, &b)
		PutBatchHeader(s.file[s.batches[2].offset:][:512], &b)
		m := &memFile{data: s.file}
		r := mustRecover(t, m)
		if got := walked(t, m.data); samePackets(got, s.survivors()) || r.Clean {
			t.Errorf("%s: the impostor was taken: %+v", name, r)
		} else if !samePackets(got, s.survivors(2)) && !samePackets(got, s.survivors(2, 3)) && !samePackets(got, s.survivors(2, 3, 4)) {
			t.Errorf("%s: %d packets survive, want all batches but the impostor and what it hides", name, len(got))
		}
	}
}

// Recover rejects a good batch of this segment at the wrong place.
func TestRecoverRejectsReplay(t *testing.T) {
	s := sample(512)
	from, to := s.batches[4], s.batches[2]
	if from.length != to.length {
		t.Fatal("the sample's slot batches differ in length")
	}
	copy(s.file[to.offset:][:to.length], s.file[from.offset:])
	m := &memFile{data: s.file}
	mustRecover(t, m)
	if !samePackets(walked(t, m.data), s.survivors(2)) {
		t.Error("the replayed batch was taken, or hid another")
	}
}

// Recover rejects blocks longer than libpcap accepts, even if they fit exactly.
func TestRecoverRejectsLongBlocks(t *testing.T) {
	for _, n := range []int{MaxBlockLen + 4, 3 << 20} {
		s := sample(512)
		end := len(s.file)
		s.file = append(s.file, make([]byte, int(roundUp(uint64(n), 512)))...)
		PutPadding(s.file[end+MinMarkLen:])
		b := Batch{Segment: s.id, Align: 512, Sequence: 6, Offset: uint64(end), Length: uint32(len(s.file) - end), FirstPacket: s.next}
		PutBatchHeader(s.file[end:][:MinMarkLen], &b)
		if r := mustRecover(t, &memFile{data: s.file}); r.Kept != int64(end) || r.Torn != 1 {
			t.Errorf("padding of %d bytes: %+v", n, r)
		}
	}
}

// A block that a reader would complain about makes its batch a bad one.
func TestRecoverRejectsBadRecords(t *testing.T) {
	for name, forge := range map[string]func(packet []byte){
		"unknown interface": func(p []byte) { le.PutUint32(p[8:], 3) },
		"captured length":   func(p []byte) { le.PutUint32(p[20:], 1<<31) },
		"original length":   func(p []byte) { le.PutUint32(p[24:], 1) },
		"type":              func(p []byte) { le.PutUint32(p, 0x0BAD) },
		"section":           func(p []byte) { le.PutUint32(p, TypeSection) },
		"option length":     func(p []byte) { le.PutUint16(p[PacketHeaderLen+60+2:], 60000) },
		"option code":       func(p []byte) { le.PutUint16(p[PacketHeaderLen+60:], 9) },
		"option PEN":        func(p []byte) { p[PacketHeaderLen+60+4]++ },
		"length":            func(p []byte) { p[5]++ },
		"odd length":        func(p []byte) { p[4]++ },
	} {
		s := sample(512)
		forge(s.file[s.batches[2].offset+512:])
		m := &memFile{data: s.file}
		r := mustRecover(t, m)
		if got := walked(t, m.data); !samePackets(got, s.survivors(2)) || r.Torn != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	s := sample(512)
	s.wipe(1, 0)
	s.wipe(4, 512)
	m := &memFile{data: bytes.Clone(s.file)}
	dry, err := Recover(m, Options{DryRun: true})
	if err != nil || m.changes != 0 || !bytes.Equal(m.data, s.file) {
		t.Fatalf("%v, %d changes", err, m.changes)
	}
	if d := cmp.Diff(dry, mustRecover(t, m)); d != "" {
		t.Errorf("dry and real report differ:\n%s", d)
	}
}

// After a crash at any step of recovery, the next recovery gives the same result.
func TestRecoverInterrupted(t *testing.T) {
	damaged := sample(512)
	damaged.wipe(1, 0)
	damaged.wipe(3, 512)
	damaged.wipe(4, 512)
	want := &memFile{data: bytes.Clone(damaged.file)}
	mustRecover(t, want)
	for step := 1; step <= want.steps; step++ {
		m := &memFile{data: bytes.Clone(damaged.file), failAt: step}
		if _, err := Recover(m, Options{}); !errors.Is(err, errInjected) {
			t.Fatalf("step %d: got %v, want the injected error", step, err)
		}
		m.failAt = 0
		mustRecover(t, m)
		if !bytes.Equal(m.data, want.data) {
			t.Errorf("interrupted at step %d the file ends differently", step)
		}
	}
}

func TestRecoverReportsReadErrors(t *testing.T) {
	m := &memFile{data: sample(512).file, readErr: errInjected}
	if _, err := Recover(m, Options{}); !errors.Is(err, errInjected) || errors.Is(err, ErrNotSegment) {
		t.Errorf("got %v, want the read error", err)
	}
}

// A file of nothing but small holes needs no more memory than any other.
func TestRecoverBoundsItsReport(t *testing.T) {
	s := newSegment(512)
	var lost []int
	for i := range 2 * (maxHoles + maxDoubts) {
		s.add(packedLayout, 0, testPacket(uint64(i), 60))
		if i%2 == 0 {
			s.wipe(i, 0)
			lost = append(lost, i)
		}
	}
	m := &memFile{data: s.file}
	r := mustRecover(t, m)
	if len(r.Holes) != maxHoles || r.HoleCount != maxHoles+maxDoubts || r.Doubtful != r.Packets {
		t.Errorf("%d of %d holes listed, %d of %d packets doubtful", len(r.Holes), r.HoleCount, r.Doubtful, r.Packets)
	}
	if !samePackets(walked(t, m.data), s.survivors(lost...)) {
		t.Error("other packets survive than should")
	}
}

// On a real file a preallocated tail of many gigabytes costs nothing, and the readers accept the result.
func TestRecoverSparseTail(t *testing.T) {
	s := sample(4096)
	s.wipe(1, 0)
	path := filepath.Join(t.TempDir(), "segment.pcapng")
	f, err := os.Create(path)
	testenv.Must(t, err)
	defer f.Close()
	if _, err := f.Write(s.file); err != nil {
		t.Fatal(err)
	}
	testenv.Must(t, f.Truncate(64<<30))
	start := time.Now()
	r, err := Recover(f, Options{})
	if err != nil || r.Kept != int64(len(s.file)) || r.Size != 64<<30 {
		t.Fatalf("%+v, %v", r, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("a tail of 64 GiB took %v", took)
	}
	checkTools(t, path, 16)
	checkPackets(t, path, s.survivors(1))
}

func TestRecoverReadOnlyFile(t *testing.T) {
	s := sample(512)
	s.wipe(1, 0)
	path := filepath.Join(t.TempDir(), "segment.pcapng")
	testenv.Must(t, os.WriteFile(path, s.file, 0o600))
	f, err := os.Open(path)
	testenv.Must(t, err)
	defer f.Close()
	if _, err := Recover(f, Options{DryRun: true}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if _, err := Recover(f, Options{}); err == nil || !strings.Contains(err.Error(), "bridge") {
		t.Errorf("got %v, want an error that names the step", err)
	}
}

func TestReportString(t *testing.T) {
	r := Report{Packets: 3, Batches: 2, Kept: 4096, Clean: true}
	if got := r.String(); got != "3 packets in 2 batches, 4096 bytes; nothing to recover" {
		t.Error(got)
	}
	s := sample(512)
	s.wipe(1, 0)
	s.wipe(4, 0)
	r = mustRecover(t, &memFile{data: s.file})
	for _, want := range []string{"12 packets in 3 batches", "1 holes", "after 4 packets, 4 packets lost", "cut from the end"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%q does not say %q", r.String(), want)
		}
	}
}

func TestWalkErrors(t *testing.T) {
	file := sample(512).file
	var offsets []int64
	if err := walk(bytes.NewReader(file), int64(len(file)), func(b Block) error {
		offsets = append(offsets, b.Offset)
		return nil
	}); err != nil || !slices.IsSorted(offsets) || len(offsets) < 30 {
		t.Fatalf("%d blocks, %v", len(offsets), err)
	}
	none := func(Block) error { return nil }
	var where *FormatError
	if err := walk(bytes.NewReader(file), int64(len(file))-4, none); !errors.As(err, &where) || !errors.Is(err, errFormat) || where.Offset != offsets[len(offsets)-1] {
		t.Errorf("cut file: got %v", err)
	}
	if err := walk(bytes.NewReader(file), int64(len(file))+512, none); err == nil || errors.Is(err, errFormat) {
		t.Errorf("file shorter than said: got %v, want a read error", err)
	}
	if err := walk(bytes.NewReader(file[offsets[1]:]), 512, none); !errors.Is(err, errNoSection) {
		t.Errorf("no section: got %v", err)
	}
	if err := walk(bytes.NewReader(file), int64(len(file)), func(Block) error { return errInjected }); err != errInjected {
		t.Errorf("got %v, want the callback's error", err)
	}
}
