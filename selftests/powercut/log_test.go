package powercut

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// encode writes a record in the format of the disk's emulator.
func encode(l *Log) []byte {
	b := make([]byte, l.Sector)
	le.PutUint64(b, magic)
	le.PutUint64(b[posVersion:], version)
	le.PutUint64(b[posEntries:], uint64(len(l.Entries)))
	le.PutUint32(b[posSectorSize:], uint32(l.Sector))
	for _, e := range l.Entries {
		head := make([]byte, l.Sector)
		le.PutUint64(head, uint64(e.Offset/l.Sector))
		le.PutUint64(head[posCount:], uint64(e.Length/l.Sector))
		le.PutUint64(head[posFlags:], e.Flags)
		b = append(append(b, head...), e.Data...)
	}
	return b
}

const toyDisk = 32 * sector

// drawLog draws a random record of a small disk.
func drawLog(t *rapid.T) *Log {
	l := &Log{Sector: sector}
	for n := range rapid.IntRange(0, 30).Draw(t, "entries") {
		e := Entry{Flags: rapid.SampledFrom([]uint64{0, 0, 0, fua, flush, discard}).Draw(t, "flags")}
		if e.Flags != flush {
			first := rapid.Int64Range(0, 31).Draw(t, "sector")
			e.Offset, e.Length = first*sector, rapid.Int64Range(1, 32-first).Draw(t, "count")*sector
		}
		if e.Flags != discard {
			e.Data = bytes.Repeat([]byte{byte(n + 1)}, int(e.Length))
		}
		l.Entries = append(l.Entries, e)
	}
	return l
}

func TestParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLog(t)
		got, err := parse(encode(l), toyDisk)
		if err != nil || got.Sector != l.Sector || len(got.Entries) != len(l.Entries) {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, e := range got.Entries {
			want := l.Entries[i]
			if e.Flags != want.Flags || e.Offset != want.Offset || e.Length != want.Length || !bytes.Equal(e.Data, want.Data) {
				t.Fatalf("entry %d is %+v, not %+v", i, e, want)
			}
		}
	})
}

// TestParseRefuses: parse refuses records with invalid fields.
func TestParseRefuses(t *testing.T) {
	good := encode(&Log{Sector: sector, Entries: []Entry{{Length: sector, Data: make([]byte, sector)}}})
	for what, change := range map[string]func(b []byte) []byte{
		"empty":        func([]byte) []byte { return nil },
		"magic":        func(b []byte) []byte { b[0]++; return b },
		"version":      func(b []byte) []byte { b[posVersion]++; return b },
		"entries":      func(b []byte) []byte { b[posEntries+7] = 0x80; return b },
		"one entry":    func(b []byte) []byte { b[posEntries] = 2; return b },
		"sector size":  func(b []byte) []byte { b[posSectorSize] = 1; return b },
		"cut off":      func(b []byte) []byte { return b[:len(b)-1] },
		"offset":       func(b []byte) []byte { b[sector] = 32; return b },
		"far offset":   func(b []byte) []byte { b[sector+7] = 0xff; return b },
		"count":        func(b []byte) []byte { b[sector+posCount+7] = 0xff; return b },
		"flags":        func(b []byte) []byte { b[sector+posFlags] = 16; return b },
		"endless mark": func(b []byte) []byte { b[sector+posFlags], b[sector+posLength+7] = mark, 0xff; return b },
	} {
		if l, err := parse(change(bytes.Clone(good)), toyDisk); !errors.Is(err, errLog) {
			t.Errorf("%s: %+v, %v", what, l, err)
		}
	}
	marked := encode(&Log{Sector: sector, Entries: []Entry{{Flags: mark, Data: make([]byte, sector)}, {Flags: flush}}})
	le.PutUint64(marked[sector+posLength:], 5)
	if l, err := parse(marked, toyDisk); err != nil || len(l.Entries) != 2 || l.Entries[1].Flags != flush {
		t.Errorf("a label: %+v, %v", l, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode(&Log{Sector: sector, Entries: []Entry{{Length: sector, Data: make([]byte, sector)}, {Flags: flush}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parse(b, toyDisk)
		if err != nil {
			return
		}
		image := make([]byte, toyDisk)
		for _, e := range l.Entries {
			e.apply(image)
		}
	})
}

func TestClaims(t *testing.T) {
	m := Marker{Flow: 3, Client: 2, Number: 5000, Packets: 1 << 40, Position: 1 << 50}
	b := make([]byte, markerLen)
	m.Put(b)
	torn := bytes.Clone(b)
	torn[100] ^= 1
	l := &Log{Sector: sector, Entries: []Entry{
		{Flags: flush}, {Offset: m.Place(), Length: markerLen, Data: torn}, {Offset: 0, Length: markerLen, Data: b},
		{Offset: m.Place(), Length: markerLen, Data: b},
	}}
	if p := parts[3]; m.Place() < p.Offset || m.Place() >= p.Offset+p.Length {
		t.Errorf("a marker at %d", m.Place())
	}
	if all := l.Claims(); len(all) != 1 || all[0] != (Claim{m, 3}) {
		t.Errorf("%+v", all)
	}
}
