//go:build !race

package wire

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// The race detector would report what these tests are about: copies that a writer overtakes.

// tornReads returns how many reads each reader of a test does: make test-long SUITE=state gives more.
func tornReads(t *testing.T) int {
	few := uint64(200000)
	if testing.Short() {
		few = 20000
	}
	return int(setting.Number(t, "UNIFIEDD_READS", few))
}

// tornReader reads once. sound is false for a mixture of two writes, which no reader may return.
type tornReader func(r *rand.Rand) (o Outcome, sound bool)

// runTorn runs readers beside a writer, each until it has got as many sound copies as asked for. A reader with a check
// must return none that is not sound, and must have seen conflicts. One without must return some: otherwise the test
// could not fail.
func runTorn(t *testing.T, reads int, write func(), checked, unchecked map[string]tornReader) {
	t.Helper()
	var writing, all sync.WaitGroup
	var stop atomic.Bool
	writes := 0
	writing.Go(func() {
		for ; !stop.Load(); writes++ {
			write()
			if writes%64 == 0 {
				runtime.Gosched()
			}
		}
	})
	limit := time.Now().Add(20*time.Second + time.Duration(reads)*20*time.Microsecond)
	run := func(name string, read tornReader, check bool, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		have, torn, mixed := 0, 0, 0
		for turn := 0; check && have < reads || !check && mixed == 0; turn++ {
			switch o, sound := read(r); {
			case !sound:
				mixed++
			case o == Torn:
				torn++
			default:
				have++
			}
			if turn%1024 == 0 {
				runtime.Gosched()
				if time.Now().After(limit) {
					break
				}
			}
		}
		// Conflicts are rare with one processor: go on until there is one.
		for ; check && torn == 0 && mixed == 0 && time.Now().Before(limit); have++ {
			switch o, sound := read(r); {
			case !sound:
				mixed++
			case o == Torn:
				torn++
			}
		}
		switch {
		case check && mixed > 0:
			t.Errorf("%s: %d of %d reads returned a mixture", name, mixed, have)
		case check && torn == 0:
			t.Errorf("%s: no conflict was seen in %d reads", name, have)
		case !check && mixed == 0:
			t.Errorf("%s: without the check all of %d reads were sound: the test cannot fail", name, have)
		}
		t.Logf("%s: %d reads, %d conflicts, %d mixtures", name, have, torn, mixed)
	}
	seed := uint64(1)
	for name, read := range checked {
		seed++
		all.Go(func() { run(name, read, true, seed) })
	}
	all.Wait()
	for name, read := range unchecked {
		run(name, read, false, 99)
	}
	stop.Store(true)
	writing.Wait()
	t.Logf("%d writes", writes)
}

// fillState makes a payload that follows from a number: all words are it, and so is the length.
func fillState(b []byte, n uint64) []byte {
	b = b[:8*(1+int(n%uint64(len(b)/8)))]
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], n)
	}
	return b
}

// soundState reports whether a payload of up to room bytes is one that fillState has made.
func soundState(b []byte, room int) bool {
	if len(b) < 8 || len(b)%8 != 0 {
		return false
	}
	n := binary.NativeEndian.Uint64(b)
	for i := 8; i < len(b); i += 8 {
		if binary.NativeEndian.Uint64(b[i:]) != n {
			return false
		}
	}
	return len(b) == 8*(1+int(n%uint64(room/8)))
}

// TestTornObjects: readers of objects that are written at full rate, by mapping and by copies of the whole object, never
// return a mixture of two writes.
func TestTornObjects(t *testing.T) {
	const objects, room = 16, 2048
	s := newState(ObjectsHead(objects, room, 1))
	var buffer [room]byte
	n := uint64(0)
	write := func() {
		n++
		s.PutObject(n%objects, fillState(buffer[:], n))
	}
	for range objects {
		write()
	}
	dst, copied, raw := make([]byte, room), make([]byte, s.Stride), make([]byte, s.Stride)
	runTorn(t, tornReads(t), write, map[string]tornReader{
		"mapped": func(r *rand.Rand) (Outcome, bool) {
			n, _, o := s.Get(r.Uint64N(objects), dst)
			return o, o != Have || soundState(dst[:n], room)
		},
		"by checksum": func(r *rand.Rand) (Outcome, bool) {
			copy(copied, s.place(r.Uint64N(objects)))
			p, _, o := CheckObject(copied)
			return o, o != Have || soundState(p, room)
		},
	}, map[string]tornReader{
		"without a check": func(r *rand.Rand) (Outcome, bool) {
			copy(raw, s.place(r.Uint64N(objects)))
			return Have, soundState(raw[ObjectHeader:ObjectHeader+min(room, int(le.Uint32(raw[8:])))], room)
		},
	})
}

// TestTornKeys: readers of a table that is nearly full, whose entries the writer moves all the time, find every key
// that is there, and a value that was written in one.
func TestTornKeys(t *testing.T) {
	const kept, others, most, room = 32, 60, 55, 96
	s := newState(KeysHead(48, 1, 42)) // 60 entries
	keys, coming := make([][]byte, kept), make([][]byte, others)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "kept %d", i)
	}
	for i := range coming {
		coming[i] = fmt.Appendf(nil, "other %d", i)
	}
	var buffer [room]byte
	n, there, r := uint64(0), 0, rand.New(rand.NewPCG(1, 9))
	write := func() {
		n++
		switch i := r.IntN(others); {
		case n%2 == 0:
			if _, ok := s.PutKey(keys[r.IntN(kept)], fillState(buffer[:], n)); !ok {
				panic("a key that is there finds no place")
			}
		case there < most:
			if added, _ := s.PutKey(coming[i], buffer[:8]); added { // it may find no place
				there++
			}
		case s.DeleteKey(coming[i]):
			there--
		}
	}
	for i := range keys {
		if _, ok := s.PutKey(keys[i], fillState(buffer[:], uint64(i))); !ok {
			t.Fatalf("key %d of %d finds no place in an empty table", i, kept)
		}
		there++
	}
	dst, pair, raw := make([]byte, MaxKeyValue), make([]byte, 4*BucketLen), make([]byte, BucketLen)
	runTorn(t, tornReads(t), write, map[string]tornReader{
		"mapped": func(r *rand.Rand) (Outcome, bool) {
			n, _, o := s.Lookup(keys[r.IntN(kept)], dst)
			return o, o == Torn || o == Have && soundState(dst[:n], room)
		},
		"by checksum": func(r *rand.Rand) (Outcome, bool) {
			key := keys[r.IntN(kept)]
			i, k := s.Buckets(key)
			for at, n := range [4]uint64{i, k, i, k} {
				copy(pair[at*BucketLen:], s.place(n))
			}
			value, o := CheckPairs(pair, key)
			return o, o == Torn || o == Have && soundState(value, room)
		},
	}, map[string]tornReader{
		"without a check": func(r *rand.Rand) (Outcome, bool) {
			key := keys[r.IntN(kept)]
			i, _ := s.Buckets(key)
			copy(raw, s.place(i))
			at := find(raw, le.Uint32(raw[12:]), key)
			return Have, at < 0 || soundState(valueOf(entryAt(raw, at), len(key)), room)
		},
		"one bucket after the other": func(r *rand.Rand) (Outcome, bool) {
			key := keys[r.IntN(kept)]
			i, k := s.Buckets(key)
			for _, n := range [2]uint64{i, k} {
				b := s.place(n)
				if find(b, used(b), key) >= 0 {
					return Have, true
				}
			}
			return Absent, false // it is there: it was moved from the second to the first
		},
	})
}
