package wire

import (
	"bytes"
	"hash/crc32"
	"math/bits"
)

const (
	// BucketLen is the length of a bucket, and entryLen that of each of its entries.
	BucketLen    = 512
	bucketHeader = 16
	entryLen     = 124
	entryHeader  = 4
	perBucket    = 4
	// MaxKeyValue is the longest key and value together, in bytes. A key has at least one.
	MaxKeyValue = entryLen - entryHeader
)

// keyEntry is a key with its value in a bucket:
//
//	0      1  length of the key
//	1      1  0
//	2      2  length of the value
//	4         key, value, zeros
type keyEntry [entryLen]byte

func (e *keyEntry) set(key, value []byte) {
	clear(e[:])
	e[0] = byte(len(key))
	le.PutUint16(e[2:], uint16(len(value)))
	copy(e[entryHeader+copy(e[entryHeader:], key):], value)
}

// entryAt returns an entry of a bucket, or of a copy of one.
func entryAt(bucket []byte, n int) []byte {
	at := bucketHeader + n*entryLen
	return bucket[at : at+entryLen : at+entryLen]
}

// keyOf returns the key of an entry. Its length is believed only as far as the entry goes: it may be written meanwhile.
func keyOf(e []byte) []byte { return e[entryHeader : entryHeader+min(int(e[0]), MaxKeyValue)] }

// valueOf returns the value of an entry, behind a key of that length.
func valueOf(e []byte, key int) []byte {
	v := e[entryHeader+key:]
	return v[:min(int(le.Uint16(e[2:])), len(v))]
}

// hash is FNV-1a of 64 bits over the seed and the key, then the finalizer of MurmurHash3.
func hash(seed uint64, key []byte) uint64 {
	h := uint64(0xcbf29ce484222325) ^ seed
	for _, c := range key {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Buckets returns the two buckets in which a key may be. They differ.
func (h *StateHead) Buckets(key []byte) (first, second uint64) {
	x := hash(h.Seed, key)
	first, second = x>>32*h.Places>>32, x&0xffffffff*h.Places>>32
	if second == first {
		if second++; second == h.Places {
			second = 0
		}
	}
	return first, second
}

// used returns the bits of a bucket's entries that are in use.
func used(b []byte) uint32 { return uint32(wordAt(b, 8).Load() >> 32) }

// find returns the number of the entry with a key, -1 if there is none.
func find(b []byte, used uint32, key []byte) int {
	for n := range perBucket {
		if used>>n&1 != 0 && bytes.Equal(keyOf(entryAt(b, n)), key) {
			return n
		}
	}
	return -1
}

// Lookup copies the value of a key into dst. A miss counts only if neither bucket was written meanwhile, since the
// writer moves entries between them: it writes the new place first. The version is that of the bucket.
func (s *State) Lookup(key, dst []byte) (n int, version uint64, o Outcome) {
	i, k := s.Buckets(key)
	both := [2][]byte{s.place(i), s.place(k)}
	var before [2]uint64
	for i, b := range both {
		before[i] = wordAt(b, 0).Load()
	}
	for i, b := range both {
		if before[i]&1 != 0 {
			continue
		}
		at := find(b, used(b), key)
		if at < 0 {
			continue
		}
		value := valueOf(entryAt(b, at), len(key))
		if o = Have; len(value) > len(dst) {
			o = Short
		}
		n = copy(dst, value)
		fence()
		if wordAt(b, 0).Load() != before[i] {
			return 0, 0, Torn
		}
		if o == Short {
			return 0, before[i], Short
		}
		return n, before[i], Have
	}
	fence()
	for i, b := range both {
		if before[i]&1 != 0 || wordAt(b, 0).Load() != before[i] {
			return 0, 0, Torn
		}
	}
	return 0, 0, Absent
}

// CheckBucket looks for a key in a copy of a bucket, if its checksum is right. The version tells whether it has changed
// between two copies.
func CheckBucket(b, key []byte) (value []byte, version uint64, o Outcome) {
	version = le.Uint64(b)
	if version&1 != 0 || bucketSum(b) != le.Uint32(b[8:]) {
		return nil, 0, Torn
	}
	at := find(b, le.Uint32(b[12:]), key)
	if at < 0 {
		return nil, version, Absent
	}
	return valueOf(entryAt(b, at), len(key)), version, Have
}

// bucketSum is the checksum of a bucket.
func bucketSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:8], castagnoli), castagnoli, b[12:BucketLen])
}

// edit writes an entry of a bucket; nil removes it.
func (s *State) edit(b []byte, n int, e *keyEntry) {
	bit := uint32(1) << n
	now := used(b) | bit
	version := begin(b)
	if e != nil {
		copy(entryAt(b, n), e[:])
	} else {
		clear(entryAt(b, n))
		now &^= bit
	}
	sum := s.sum(version, now, b[bucketHeader:BucketLen])
	wordAt(b, 8).Store(uint64(sum) | uint64(now)<<32)
	wordAt(b, 0).Store(version)
}

// free returns an unused entry of a bucket, -1 if there is none.
func free(used uint32) int {
	if n := bits.TrailingZeros32(^used); n < perBucket {
		return n
	}
	return -1
}

// searched bounds the buckets at which a put looks for a path to an unused entry.
const searched = 256

// search is the writer's memory for a path of moves.
type search struct {
	nodes [searched]node
	entry keyEntry
}

// node is a bucket that an entry of its parent may move to.
type node struct {
	bucket uint64
	parent int32 // -1: none
	slot   int8  // the parent's entry
}

// PutKey writes the value of a key, and reports whether the key is new and whether there was a place for it. Key and
// value have at most MaxKeyValue bytes together, must not change meanwhile, and the key has at least one. Only the
// writer calls it.
func (s *State) PutKey(key, value []byte) (added, ok bool) {
	i, k := s.Buckets(key)
	a, b := s.place(i), s.place(k)
	e := &s.path.entry
	e.set(key, value)
	for _, one := range [2][]byte{a, b} {
		if n := find(one, used(one), key); n >= 0 {
			s.edit(one, n, e)
			return false, true
		}
	}
	for _, one := range [2][]byte{a, b} { // the first if it has room: peers look there first
		if n := free(used(one)); n >= 0 {
			s.edit(one, n, e)
			return true, true
		}
	}
	bucket, n := s.makeRoom(i, k)
	if n < 0 {
		return false, false
	}
	e.set(key, value)
	s.edit(s.place(bucket), n, e)
	return true, true
}

// makeRoom frees an entry in one of two buckets, by moving entries to their other buckets. It returns -1 if a bounded
// search finds no way.
func (s *State) makeRoom(i, k uint64) (bucket uint64, slot int) {
	p := &s.path
	p.nodes[0], p.nodes[1] = node{i, -1, 0}, node{k, -1, 0}
	for n, next := 0, 2; n < next; n++ {
		from := p.nodes[n].bucket
		b := s.place(from)
		for slot := range perBucket {
			to := s.other(entryAt(b, slot), from)
			if at := free(used(s.place(to))); at >= 0 {
				return s.move(n, slot, to, at)
			}
			if next < searched {
				p.nodes[next] = node{to, int32(n), int8(slot)}
				next++
			}
		}
	}
	return 0, -1
}

// other returns the other bucket of an entry.
func (s *State) other(e []byte, bucket uint64) uint64 {
	i, k := s.Buckets(keyOf(e))
	if i == bucket {
		return k
	}
	return i
}

// move moves the entries of a path, the last one first, and returns the entry that is free then. A path may meet itself:
// then an entry may have moved already, and the rest of the path is not gone.
func (s *State) move(n, slot int, to uint64, at int) (bucket uint64, freed int) {
	for {
		one := &s.path.nodes[n]
		from := s.place(one.bucket)
		if used(from)>>slot&1 == 0 || s.other(entryAt(from, slot), one.bucket) != to {
			return 0, -1
		}
		copy(s.path.entry[:], entryAt(from, slot))
		s.edit(s.place(to), at, &s.path.entry) // first, so that a reader finds it in one of both
		s.edit(from, slot, nil)
		if one.parent < 0 {
			return one.bucket, slot
		}
		to, at = one.bucket, slot
		n, slot = int(one.parent), int(one.slot)
	}
}

// DeleteKey removes a key, and reports whether it was there. Only the writer calls it.
func (s *State) DeleteKey(key []byte) bool {
	i, k := s.Buckets(key)
	for _, n := range [2]uint64{i, k} {
		b := s.place(n)
		if at := find(b, used(b), key); at >= 0 {
			s.edit(b, at, nil)
			return true
		}
	}
	return false
}

// CheckPairs looks for a key in copies of its two buckets that were made twice: first, second, first, second, the last
// two after the first two. It is absent only if neither bucket has changed between its copies, since the writer moves
// entries.
func CheckPairs(b, key []byte) (value []byte, o Outcome) {
	var versions [4]uint64
	for n := range versions {
		value, version, o := CheckBucket(b[n*BucketLen:(n+1)*BucketLen], key)
		if o != Absent {
			return value, o
		}
		versions[n] = version
	}
	if versions[0] != versions[2] || versions[1] != versions[3] {
		return nil, Torn
	}
	return nil, Absent
}
