package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// mendChecksums corrects the checksums of marks and messages. Otherwise the fuzzer would not get
// past them.
func mendChecksums(raw []byte) {
	for at := 0; at+pcapng.MinMarkLen <= len(raw); at += 4 {
		if binary.LittleEndian.Uint32(raw[at:]) == pcapng.TypeMark && string(raw[at+12:at+16]) == "UFDM" {
			binary.LittleEndian.PutUint32(raw[at+80:], crc32.Checksum(raw[at:at+80], castagnoli))
		}
		if string(raw[at:at+4]) == "uMSG" {
			binary.BigEndian.PutUint32(raw[at+60:], crc32.Checksum(raw[at:at+60], castagnoli))
		}
	}
}

// FuzzSegments: for any contents of two segments, reading ends, and returns only intact records
// with ascending positions.
func FuzzSegments(f *testing.F) {
	two := twoRuns(f)
	a, b := two[0], two[1]
	f.Add(a.raw, b.raw, uint8(0))
	f.Add(a.raw, b.end().raw, uint8(3))
	f.Add(a.raw[:a.batches[2].offset+100], a.raw, uint8(6))
	f.Fuzz(func(t *testing.T, first, second []byte, from uint8) {
		s := memory{append([]byte(nil), first...), append([]byte(nil), second...)}
		s.readAll(t, uint64(from))
	})
}

// readAll reads segments in every way that the package has.
func (m memory) readAll(t tester, from uint64) {
	size := 0
	for _, raw := range m {
		mendChecksums(raw)
		size += len(raw)
	}
	l := &Log{set: m}
	r := l.Reader(from)
	ends(t, r, size)
	end, err := l.tail(nil, looked, never)
	report := Report{}
	err2 := errors.Join(r.Close(), l.walk(&report), l.inspect(&report))
	if (err == nil) != (err2 == nil) || err == nil && (end.Next == 0 || report.Next != end.Next) {
		t.Fatalf("%+v, %v; %+v, %v", end, err, report, err2)
	}
}

// TestAnyDamage: reading ends in the same way if a few bytes of valid segments change. This reaches
// deeper than the fuzzer.
func TestAnyDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := memory{}
		for _, m := range twoRuns(t) {
			raw := m.raw
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
				if rapid.Bool().Draw(t, "in a mark") {
					at = rapid.SampledFrom(m.batches).Draw(t, "batch").offset + rapid.IntRange(0, pcapng.MinMarkLen).Draw(t, "mark")
				}
				if at < len(raw) {
					raw[at] = rapid.Byte().Draw(t, "to")
				}
				if rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
					raw = raw[:at+1]
				}
			}
			s = append(s, raw)
		}
		s.readAll(t, rapid.Uint64Range(0, 12).Draw(t, "from"))
	})
}

// twoRuns returns segments of two runs. The second run voids the end of the first.
func twoRuns(t tester) []*made {
	r := newRun(2, 1)
	a := r.file(t)
	for range 3 {
		r.batch(a, 2, a.here())
	}
	r = newRun(3, 5)
	b := r.file(t)
	r.batch(b, 2, 0)
	return []*made{a, b}
}

// memory is a set of segments in memory.
type memory [][]byte

func (m memory) list(from uint64) (all []piece, err error) {
	for i := range m {
		if n := uint64(i) + 1; n >= from {
			all = append(all, piece{number: n, name: "segment"})
		}
	}
	return all, nil
}

func (m memory) open(p piece) (*segment, error) {
	raw := m[p.number-1]
	s, err := newSegment(p, bytes.NewReader(raw), nil, func() (int64, error) { return int64(len(raw)), nil }, false)
	if err == nil {
		s.idle = func() bool { return true }
	}
	return s, err
}

func (m memory) bytes(p piece) (io.ReaderAt, int64, func() error, error) {
	raw := m[p.number-1]
	return bytes.NewReader(raw), int64(len(raw)), func() error { return nil }, nil
}

func (m memory) piece(number uint64) piece { return piece{number: number, name: "segment"} }

func (m memory) manifest() (Manifest, int, error) { return Manifest{}, 0, errNoManifest }

func (m memory) suspects(*Manifest) ([]piece, error) { return nil, nil }

func (m memory) Close() error { return nil }

// ends reads to the end, and fails after most records: a set cannot have more records than bytes.
func ends(t tester, r *Reader, most int) {
	last := uint64(0)
	for range 2*most + 10 {
		rec, err := r.Next()
		_, gap := errors.AsType[*Gap](err)
		cut, cuts := errors.AsType[*Cut](err)
		switch {
		case cuts:
			last = cut.From - 1
		case gap:
		case err == io.EOF, err != nil:
			return
		case rec.Position <= last || protocol.Checksum(rec.Payload) != rec.Checksum || int(rec.Length) != len(rec.Payload):
			t.Fatalf("behind %d: %+v", last, rec)
		default:
			last = rec.Position
		}
	}
	t.Fatalf("it does not end")
}
