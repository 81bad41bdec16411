package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// tester is the common part of *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

const align = 512

// payload returns the payload that a run writes for the record with a position.
func payload(position, run uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, position)
	b = binary.BigEndian.AppendUint64(b, run)
	return append(b, bytes.Repeat([]byte{byte(position), byte(run)}, int(position*7%300))...)
}

// message returns the message of the record with a position.
func message(position, run uint64) []byte {
	p := payload(position, run)
	d := protocol.Data{Sequence: position, Session: 1 + position%3, Position: position, Stamp: run, Length: uint32(len(p)), Checksum: protocol.Checksum(p)}
	b := make([]byte, protocol.HeaderLen, protocol.HeaderLen+len(p))
	protocol.PutData(b, &d)
	return append(b, p...)
}

// made is a segment as a flow writes it.
type made struct {
	id       pcapng.SegmentID
	raw      []byte
	batches  []place
	sequence uint64
	packets  uint64 // number of the next one
	base     uint64
	numbered bool
}

type place struct{ offset, length int }

// markLen is the length of its batches' marks.
func (m *made) markLen() uint32 { return binary.LittleEndian.Uint32(m.raw[m.batches[0].offset+4:]) }

// run is one run of a flow.
type run struct {
	number, start, next uint64
	block               uint32 // records are rounded up to this: 4 packed, 512 slot
	verified            bool   // payloads were checked on receipt
}

func newRun(number, start uint64) *run {
	return &run{number: number, start: start, next: start, block: []uint32{4, 512}[number%2]}
}

// newVerifiedRun returns a run that checked payloads on receipt. In such a run only a crash can
// leave a bad payload.
func newVerifiedRun(number, start uint64) *run {
	r := newRun(number, start)
	r.verified = true
	return r
}

// segment begins a segment.
func (r *run) segment(t tester, id pcapng.SegmentID, numbered bool, base uint64) *made {
	t.Helper()
	source := Source("wal", r.start, r.number, 2048)
	if r.verified {
		source = Verified(source)
	}
	head, err := pcapng.AppendSegmentHead(nil, pcapng.Section{Application: "test"}, []pcapng.Interface{source},
		pcapng.Segment{ID: id, Align: align, FirstPacket: base})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &made{id: id, raw: head, numbered: numbered, base: base, packets: base}
}

// file begins a segment file.
func (r *run) file(t tester) *made {
	return r.segment(t, pcapng.SegmentID{byte(r.number), byte(r.next), byte(r.next >> 8), 1}, false, 0)
}

// batch adds the next n records.
func (r *run) batch(m *made, n int, durable uint64) {
	start := len(m.raw)
	mark := pcapng.MinMarkLen
	if r.block == 512 {
		mark = 512
	}
	m.raw = append(m.raw, make([]byte, mark)...)
	b := pcapng.Batch{Segment: m.id, Align: align, Sequence: m.sequence + 1, Offset: uint64(start), Packets: uint32(n), Durable: durable, FirstPacket: m.packets}
	for range n {
		m.packet(message(r.next, r.number), r.next, r.block)
		r.next++
	}
	if pad := make([]byte, pcapng.PaddingLen(int64(len(m.raw)), align)); len(pad) > 0 {
		pcapng.PutPadding(pad)
		m.raw = append(m.raw, pad...)
	}
	b.Length = uint32(len(m.raw) - start)
	pcapng.PutBatchHeader(m.raw[start:][:mark], &b)
	m.batches = append(m.batches, place{start, len(m.raw) - start})
	m.sequence++
}

func (m *made) packet(data []byte, time uint64, round uint32) {
	n, at := uint32(len(data)), len(m.raw)
	extra := uint32(0)
	if m.numbered {
		extra = pcapng.NumberLen
	}
	block := pcapng.PacketBlockLen(n+extra, round)
	m.raw = append(m.raw, make([]byte, block)...)
	pcapng.PutPacket(m.raw[at:], 0, time, data, n, block)
	if m.numbered {
		pcapng.PutNumberedTail(m.raw[at+pcapng.PacketHeaderLen+len(data):], n, block, m.packets)
	}
	m.packets++
}

// here returns the offset after the last batch.
func (m *made) here() uint64 { return uint64(len(m.raw)) }

// end completes the segment.
func (m *made) end() *made { return m.ending(false) }

// ending ends the segment as recovery does (mended) or as its writer does.
func (m *made) ending(mended bool) *made {
	b := pcapng.Batch{Mended: mended, Segment: m.id, Align: align, Sequence: m.sequence + 1, Offset: m.here(), Length: align, Durable: m.here(), FirstPacket: m.packets}
	last := make([]byte, align)
	if m.numbered {
		pcapng.PutEnd(last, &b)
	} else {
		pcapng.PutBatchHeader(last, &b)
	}
	m.raw = append(m.raw, last...)
	return m
}

// segmentPath returns the path of a segment file.
func segmentPath(prefix string, number int) string {
	return fmt.Sprintf("%s-20261121T140500Z-%06d.pcapng", prefix, number)
}

func (m *made) write(t tester, path string) {
	t.Helper()
	if err := os.WriteFile(path, m.raw, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}

// poke changes one byte in the payload of a batch's first packet.
func (m *made) poke(batch int) {
	at := m.batches[batch]
	i := bytes.Index(m.raw[at.offset:at.offset+at.length], []byte("uMSG"))
	m.raw[at.offset+i+protocol.HeaderLen+1] ^= 1
}

// smudge changes one byte in a batch's mark.
func (m *made) smudge(batch int) { m.raw[m.batches[batch].offset+17] ^= 1 }

// lose wipes a batch.
func (m *made) lose(batch int) {
	at := m.batches[batch]
	clear(m.raw[at.offset : at.offset+at.length])
}

// mend recovers a segment, as the flow does at its next start.
func mend(t tester, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	if done, err := pcapng.Finished(f, size); done || err != nil {
		return
	}
	r, err := pcapng.Recover(f, pcapng.Options{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	last := make([]byte, align)
	pcapng.PutBatchHeader(last, &pcapng.Batch{Segment: r.Segment, Align: align, Sequence: r.Batches + r.MissingBatches + 1, Offset: uint64(r.Kept),
		Length: align, Durable: uint64(r.Kept), FirstPacket: r.FirstPacket + r.Packets + r.MissingPackets, Mended: true})
	if _, err := f.WriteAt(last, r.Kept); err != nil {
		t.Fatalf("%v", err)
	}
}

// said is what a reader returned up to the end of the log: positions and runs of records, gaps and
// cuts.
type said struct {
	positions, runs []uint64
	gaps            []*Gap
	cuts            []*Cut
}

// readOn reads up to the present end of the log, and checks each record.
func readOn(t tester, r *Reader) (all said) {
	t.Helper()
	for {
		rec, err := r.Next()
		if g, ok := errors.AsType[*Gap](err); ok {
			all.gaps = append(all.gaps, g)
			continue
		}
		if c, ok := errors.AsType[*Cut](err); ok {
			all.cuts = append(all.cuts, c)
			continue
		}
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("behind record %d: %v", r.Position()-1, err)
		}
		check(t, &rec)
		all.positions, all.runs = append(all.positions, rec.Position), append(all.runs, rec.Stamp)
	}
}

func check(t tester, rec *Record) {
	t.Helper()
	if !bytes.Equal(rec.Payload, payload(rec.Position, rec.Stamp)) || rec.Time != rec.Position || rec.Segment == "" || rec.Offset == 0 {
		t.Fatalf("record %d of run %d: %+v", rec.Position, rec.Stamp, rec)
	}
}

func readFrom(t tester, path string, from uint64) said {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r := l.Reader(from)
	all := readOn(t, r)
	if err := errors.Join(r.Close(), l.Close()); err != nil {
		t.Fatalf("%v", err)
	}
	return all
}

// expect fails unless the reader returned exactly the positions from one to another, without a gap.
func expect(t tester, all said, from, to uint64) {
	t.Helper()
	expectPositions(t, all, from, to)
	if len(all.gaps)+len(all.cuts) > 0 {
		t.Fatalf("it tells %v %v", all.gaps, all.cuts)
	}
}

func expectPositions(t tester, all said, from, to uint64) {
	t.Helper()
	if uint64(len(all.positions)) != to+1-from {
		t.Fatalf("records %v, want %d to %d; told: %v", all.positions, from, to, all.gaps)
	}
	for i, p := range all.positions {
		if p != from+uint64(i) {
			t.Fatalf("record %d where %d should be: %v", p, from+uint64(i), all.positions)
		}
	}
}

func tail(t tester, path string) End {
	t.Helper()
	end, err := Tail(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return end
}

func verify(t tester, path string) Report {
	t.Helper()
	r, err := Verify(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r
}

// ringFile makes a file with an empty ring.
func ringFile(t testing.TB) (*os.File, ring.Ring) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "ring"))
	testenv.Must(t, err)
	t.Cleanup(func() { f.Close() })
	testenv.Must(t, f.Truncate(6<<20))
	made, err := ring.Create(f, 6<<20, 1<<20)
	testenv.Must(t, err)
	return f, made
}

// slot writes a segment to a ring.
func slot(t tester, f *os.File, r ring.Ring, generation uint64, m *made) {
	t.Helper()
	if _, err := r.Slot(f, generation).WriteAt(m.raw, 0); err != nil {
		t.Fatalf("%v", err)
	}
}

// all returns the marks of all sessions.
func (s *Sessions) all() map[uint64]Mark {
	all := map[uint64]Mark{}
	maps.Copy(all, s.old)
	maps.Copy(all, s.young)
	return all
}
