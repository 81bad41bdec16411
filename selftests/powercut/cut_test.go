package powercut

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func drawRand(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
}

// TestCutKeepsWhatIsDurable: after a cut each sector has the content of its last durable write, or
// of a pending write.
func TestCutKeepsWhatIsDurable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLog(t)
		at := rapid.IntRange(0, len(l.Entries)).Draw(t, "at")
		fate := Fate(rapid.IntRange(0, int(fates)-1).Draw(t, "fate"))
		got := bytes.Repeat([]byte{0xff}, toyDisk)
		c := l.Cut(got, at, fate, drawRand(t))
		for s := range int64(toyDisk / sector) {
			if may := l.possible(at, s); !may[got[s*sector]] {
				t.Fatalf("%v: sector %d holds %d, and could hold %v", c, s, got[s*sector], may)
			}
			if one := got[s*sector:][:sector]; !bytes.Equal(one, bytes.Repeat(one[:1], sector)) {
				t.Fatalf("%v: sector %d is torn", c, s)
			}
		}
	})
}

// possible returns the values that a sector can have after a cut, on a disk that was full of 0xff.
// It computes them differently from Cut: forward, each sector by itself.
func (l *Log) possible(at int, s int64) map[byte]bool {
	may := map[byte]bool{0xff: true}
	last := byte(0xff)
	for _, e := range l.Entries[:at] {
		if s*sector >= e.Offset && s*sector < e.Offset+e.Length {
			last = 0
			if e.Data != nil {
				last = e.Data[0]
			}
			if e.Flags&fua != 0 {
				clear(may)
			}
			may[last] = true
		}
		if e.Flags&flush != 0 {
			clear(may)
			may[last] = true
		}
	}
	return may
}

// TestFates: Kept keeps all writes, and Lost loses all that are not durable.
func TestFates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, r := drawLog(t), drawRand(t)
		at := rapid.IntRange(0, len(l.Entries)).Draw(t, "at")
		whole, kept, lost, before := make([]byte, toyDisk), make([]byte, toyDisk), make([]byte, toyDisk), make([]byte, toyDisk)
		for i, e := range l.Entries[:at] {
			e.apply(whole)
			if i < l.flushed(at) || e.Flags&fua != 0 {
				e.apply(before)
			}
		}
		if c := l.Cut(kept, at, Kept, r); !bytes.Equal(kept, whole) || c.Kept != c.Pending {
			t.Fatalf("%v: not everything was kept", c)
		}
		if c := l.Cut(lost, at, Lost, r); !bytes.Equal(lost, before) {
			t.Fatalf("%v: not everything was lost", c)
		}
	})
}

// TestTornAndReordered: some cuts lose the earlier of two writes, and some lose parts of one write.
func TestTornAndReordered(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 8*sector)
	l := &Log{Sector: sector, Entries: []Entry{
		{Offset: 0, Length: sector, Data: long[:sector]}, {Flags: flush},
		{Offset: sector, Length: 8 * sector, Data: long}, {Offset: 10 * sector, Length: 8 * sector, Data: long},
	}}
	var late, torn bool
	for seed := range uint64(100) {
		image := make([]byte, toyDisk)
		c := l.Cut(image, 4, Fate(seed%uint64(fates)), rand.New(rand.NewPCG(seed, 0)))
		if image[0] != 7 {
			t.Fatalf("%v: what was flushed is lost", c)
		}
		late = late || image[sector] == 0 && image[10*sector] == 7
		torn = torn || c.Torn > 0 && bytes.Contains(image[sector:9*sector], []byte{7, 0})
	}
	if !late || !torn {
		t.Errorf("reordered %v, torn %v", late, torn)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		found      []uint64
		durable    uint64
		overwrites bool
		want       error
	}{
		{nil, 0, false, nil},
		{nil, 1, false, errLost},
		{[]uint64{0, 1, 2}, 3, false, nil},
		{[]uint64{0, 1, 2, 5, 9}, 3, false, nil},
		{[]uint64{0, 1, 3}, 3, false, errLost},
		{[]uint64{1, 2, 3}, 3, false, errLost},
		{[]uint64{0, 1}, 3, false, errLost},
		{[]uint64{0, 1, 1}, 2, false, errOrder},
		{[]uint64{0, 2, 1}, 1, false, errOrder},
		{[]uint64{7, 8, 9}, 10, true, nil},
		{[]uint64{7, 8}, 10, true, errLost},
		{[]uint64{7, 9, 10}, 10, true, errLost},
		{nil, 10, true, errLost},
	} {
		if err := check(c.found, c.durable, c.overwrites); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
