package powercut

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

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
