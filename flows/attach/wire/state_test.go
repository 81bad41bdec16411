package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// newState makes a state of its own memory.
func newState(h StateHead) *State { return NewState(bytesOf(make([]uint64, h.Len()/8)), h) }

// copyOf is the memory of a place, as a READ brings it.
func copyOf(s *State, place uint64) []byte {
	return bytesOf(append([]uint64(nil), wordsOf(s.place(place))...))
}

func wordsOf(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	copy(bytesOf(words), b)
	return words
}

// TestStateHead: a head is parsed as it was made, and a damaged one is refused.
func TestStateHead(t *testing.T) {
	for _, h := range []StateHead{ObjectsHead(100, 336, 7), ObjectsHead(1, MaxRoom, 7), KeysHead(1000, 7, 9), KeysHead(1, 7, 9)} {
		s := newState(h)
		r, err := ReadState(s.memory)
		if err != nil || r.StateHead != h {
			t.Fatalf("%+v is read as %+v: %v", h, r, err)
		}
		for at := range 28 { // everything but the seed
			b := append([]byte(nil), s.memory[:StateHeadLen]...)
			b[at] ^= 0x41
			if got, err := ParseStateHead(b, h.Len()); err == nil && got.Len() > h.Len() {
				t.Errorf("with byte %d changed the head is %+v, which is larger", at, got)
			}
		}
		if _, err := ParseStateHead(s.memory, h.Len()-1); !errors.Is(err, ErrState) {
			t.Errorf("memory that is too short: %v", err)
		}
	}
}

// TestObjects: objects are what was written last, for both kinds of readers.
func TestObjects(t *testing.T) {
	s := newState(ObjectsHead(16, 100, 1))
	dst, want := make([]byte, 100), map[uint64][]byte{}
	versions := map[uint64]uint64{}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		n := r.Uint64N(16)
		if r.IntN(3) == 0 {
			if s.DeleteObject(n) != (want[n] != nil) {
				t.Fatalf("%d: object %d was there or not", i, n)
			}
			delete(want, n)
		} else {
			p := make([]byte, r.IntN(101))
			for k := range p {
				p[k] = byte(r.Uint32())
			}
			if s.PutObject(n, p) != (want[n] == nil) {
				t.Fatalf("%d: object %d was there or not", i, n)
			}
			want[n] = p
		}
		for n := range uint64(16) {
			length, version, o := s.Get(n, dst)
			payload, checked, oc := CheckObject(copyOf(s, n))
			if o != oc || o == Have && (!bytes.Equal(dst[:length], want[n]) || !bytes.Equal(payload, want[n])) || (o == Absent) != (want[n] == nil) {
				t.Fatalf("%d: object %d is %v, %v: %x and not %x", i, n, o, oc, dst[:length], want[n])
			}
			if o == Have && version != checked || version < versions[n] {
				t.Fatalf("object %d has version %d, %d after %d", n, version, checked, versions[n])
			}
			versions[n] = version
		}
	}
	s.PutObject(3, make([]byte, 100))
	if _, _, o := s.Get(3, dst[:99]); o != Short {
		t.Errorf("into 99 bytes: %v", o)
	}
}

// TestMark: the mark is what was set last.
func TestMark(t *testing.T) {
	s := newState(KeysHead(10, 1, 2))
	for i := range uint64(10) {
		want := Mark{i, 2 * i}
		s.SetMark(want)
		m, o := s.ReadMark()
		c, oc := CheckMark(s.memory[:StateHeadLen])
		if m != want || o != Have || c != want || oc != Have {
			t.Errorf("%v, %v; %v, %v", m, o, c, oc)
		}
	}
}

// lookUp asks both kinds of readers for a key.
func lookUp(s *State, key []byte) (value []byte, o Outcome, err error) {
	dst := make([]byte, MaxKeyValue)
	n, _, o := s.Lookup(key, dst)
	i, k := s.Buckets(key)
	oc := Absent
	var checked []byte
	for _, n := range [2]uint64{i, k} {
		v, _, one := CheckBucket(copyOf(s, n), key)
		if one == Torn {
			return nil, o, fmt.Errorf("bucket %d is torn", n)
		}
		if one == Have {
			if oc == Have {
				return nil, o, fmt.Errorf("key %x is in both buckets", key)
			}
			checked, oc = v, one
		}
	}
	if o != oc || !bytes.Equal(dst[:n], checked) {
		return nil, o, fmt.Errorf("key %x: %v %x and %v %x", key, o, dst[:n], oc, checked)
	}
	return dst[:n], o, nil
}

// TestTable: a table has what a map has after the same puts and deletes, also when it is full and entries move.
func TestTable(t *testing.T) {
	for _, keys := range []uint64{1, 8, 100, 2000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) { testTable(t, keys) })
	}
}

func testTable(t *testing.T, keys uint64) {
	r := rand.New(rand.NewPCG(keys, 3))
	w := NewWriter(newState(KeysHead(keys, 1, r.Uint64())), keys)
	want, refused := map[string]string{}, 0
	var m []byte
	for i := range 30 * keys {
		key := make([]byte, 2+r.IntN(20))
		binary.LittleEndian.PutUint16(key, uint16(r.Uint64N(2*keys)))
		for k := range key[2:] {
			key[2+k] = key[0] ^ byte(k)
		}
		key = key[:2+int(key[0])%(len(key)-1)]
		value := make([]byte, r.IntN(MaxKeyValue-len(key)+1))
		for k := range value {
			value[k] = byte(r.Uint32())
		}
		_, there := want[string(key)]
		if r.IntN(3) == 0 {
			m = AppendDeleteKey(m[:0], key)
			delete(want, string(key))
			if _, why := w.Apply(m); why != Applied {
				t.Fatalf("a delete is refused: %v", why)
			}
		} else {
			m = AppendPutKey(m[:0], key, value)
			switch _, why := w.Apply(m); {
			case why == Applied:
				want[string(key)] = string(value)
			case why == Full && !there && uint64(len(want)) == keys:
				refused++
			default:
				t.Fatalf("put %d of %d keys: %v", len(want), keys, why)
			}
		}
		if w.Entries() != uint64(len(want)) {
			t.Fatalf("%d entries, and %d keys", w.Entries(), len(want))
		}
		value, o, err := lookUp(w.State, key)
		if got, there := want[string(key)]; err != nil || there != (o == Have) || there && got != string(value) {
			t.Fatalf("%d: key %x is %v %x, and not %x: %v", i, key, o, value, got, err)
		}
	}
	for key, v := range want {
		if value, o, err := lookUp(w.State, []byte(key)); o != Have || v != string(value) || err != nil {
			t.Fatalf("key %x is %v %x, and not %x: %v", key, o, value, v, err)
		}
	}
	if refused == 0 {
		t.Error("the table was never full")
	}
}

// TestTableMoves: all keys that a table is made for find a place, by moving others, and none is lost by that. Beyond
// them it refuses a key at last, and keeps all others.
func TestTableMoves(t *testing.T) {
	const keys = 20000
	w := NewWriter(newState(KeysHead(keys, 1, 77)), ^uint64(0))
	var m, key []byte
	n := uint64(0)
	for ; ; n++ {
		key = fmt.Appendf(key[:0], "key %d", n)
		m = AppendPutKey(m[:0], key, key[4:])
		if _, why := w.Apply(m); why == NoPlace {
			break
		} else if why != Applied {
			t.Fatal(why)
		}
	}
	if most := 4 * w.Places; n < keys || n < most*9/10 {
		t.Errorf("the table refuses key %d of %d entries", n, most)
	}
	for i := range n {
		key = fmt.Appendf(key[:0], "key %d", i)
		if value, o, err := lookUp(w.State, key); o != Have || !bytes.Equal(value, key[4:]) || err != nil {
			t.Fatalf("key %q is %v %q: %v", key, o, value, err)
		}
	}
	t.Logf("%d keys fill %.1f %% of the entries", n, 100*float64(n)/float64(4*w.Places))
}

// TestUpdates: each reason to refuse an update, and what is refused changes nothing.
func TestUpdates(t *testing.T) {
	objects, keys := NewWriter(newState(ObjectsHead(4, 10, 1)), 0), NewWriter(newState(KeysHead(2, 1, 5)), 2)
	for _, k := range []string{"a", "b"} {
		if _, why := keys.Apply(AppendPutKey(nil, []byte(k), []byte("1"))); why != Applied {
			t.Fatal(why)
		}
	}
	change := func(b []byte, at int, to byte) []byte { b[at] = to; return b }
	before := append([]byte(nil), objects.memory...)
	beforeKeys := append([]byte(nil), keys.memory...)
	for i, c := range []struct {
		w    *Writer
		b    []byte
		want UpdateReason
	}{
		{objects, nil, BadUpdate},
		{objects, AppendPutObject(nil, 1, nil)[:15], BadUpdate},
		{objects, change(AppendPutObject(nil, 1, nil), 0, 0), BadUpdate},
		{objects, change(AppendPutObject(nil, 1, nil), 0, 3), BadUpdate},
		{objects, change(AppendPutObject(nil, 1, nil), 7, 1), BadUpdate},
		{objects, append(AppendDeleteObject(nil, 1), 0), BadUpdate},
		{objects, AppendPutObject(nil, 4, nil), BadObject},
		{objects, AppendPutObject(nil, ^uint64(0), nil), BadObject},
		{objects, AppendDeleteObject(nil, 1<<40), BadObject},
		{objects, AppendPutObject(nil, 1, make([]byte, 11)), UpdateLong},
		{objects, AppendPutKey(nil, []byte("a"), nil), BadKey},
		{keys, AppendPutObject(nil, 0, nil), BadKey},
		{keys, AppendPutObject(nil, 1, nil), BadObject},
		{keys, change(AppendPutKey(nil, []byte("a"), nil), 1, 2), BadKey},
		{keys, AppendPutKey(nil, []byte("a"), make([]byte, 120)), UpdateLong},
		{keys, AppendDeleteKey(nil, make([]byte, 121)), UpdateLong},
		{keys, change(AppendDeleteKey(nil, []byte("ab")), 1, 1), BadUpdate},
		{keys, AppendPutKey(nil, []byte("c"), nil), Full},
	} {
		if n, why := c.w.Apply(c.b); why != c.want || n != 0 {
			t.Errorf("update %d: %v and not %v", i, why, c.want)
		}
	}
	if !bytes.Equal(before, objects.memory) || !bytes.Equal(beforeKeys, keys.memory) {
		t.Error("a refused update has changed the state")
	}
	for r := range UpdateReasons {
		if r.String() == "" {
			t.Errorf("reason %d has no word", r)
		}
	}
}

// FuzzApply: no message makes a writer panic, and the table stays whole.
func FuzzApply(f *testing.F) {
	f.Add(AppendPutObject(nil, 1, []byte("x")), AppendPutKey(nil, []byte("key"), []byte("value")))
	f.Add(AppendDeleteObject(nil, 1), AppendDeleteKey(nil, []byte("key")))
	objects, keys := NewWriter(newState(ObjectsHead(8, 64, 1)), 0), NewWriter(newState(KeysHead(64, 1, 5)), 64)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		objects.Apply(a)
		keys.Apply(b)
		for n := range objects.Places {
			if _, _, o := CheckObject(copyOf(objects.State, n)); o == Torn {
				t.Fatalf("object %d is torn", n)
			}
		}
		for n := range keys.Places {
			if _, _, o := CheckBucket(copyOf(keys.State, n), []byte("key")); o == Torn {
				t.Fatalf("bucket %d is torn", n)
			}
		}
	})
}

// TestStateAllocatesNothing: no operation of writer and readers allocates.
func TestStateAllocatesNothing(t *testing.T) {
	objects, keys := NewWriter(newState(ObjectsHead(8, 336, 1)), 0), NewWriter(newState(KeysHead(64, 1, 5)), 64)
	key, dst := []byte("instrument"), make([]byte, 400)
	put, del := AppendPutKey(nil, key, dst[:40]), AppendDeleteKey(nil, key)
	object := AppendPutObject(nil, 3, dst[:336])
	bucket, place := copyOf(keys.State, 0), copyOf(objects.State, 3)
	if n := testing.AllocsPerRun(100, func() {
		keys.Apply(put)
		keys.Lookup(key, dst)
		keys.Apply(del)
		objects.Apply(object)
		objects.Get(3, dst)
		objects.SetMark(Mark{1, 2})
		objects.ReadMark()
		CheckBucket(bucket, key)
		CheckObject(place)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkState(b *testing.B) {
	objects, keys := NewWriter(newState(ObjectsHead(1024, 336, 1)), 0), NewWriter(newState(KeysHead(65536, 1, 5)), 65536)
	key, dst := []byte("instrument"), make([]byte, 400)
	put, object := AppendPutKey(nil, key, dst[:40]), AppendPutObject(nil, 3, dst[:336])
	keys.Apply(put)
	objects.Apply(object)
	b.Run("put object", func(b *testing.B) {
		for b.Loop() {
			objects.Apply(object)
		}
	})
	b.Run("get object", func(b *testing.B) {
		for b.Loop() {
			objects.Get(3, dst)
		}
	})
	b.Run("put key", func(b *testing.B) {
		for b.Loop() {
			keys.Apply(put)
		}
	})
	b.Run("look up key", func(b *testing.B) {
		for b.Loop() {
			keys.Lookup(key, dst)
		}
	})
}
