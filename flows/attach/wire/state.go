package wire

import (
	"errors"
	"fmt"
	"hash/crc32"
)

// A state is memory that one process writes and any number read: programs of the host, which map it, and peers, which
// READ it over RDMA. It begins with a head of one page:
//
//	 0      4  "uSTA"
//	 4      4  kind: 1 objects, 2 keys, 3 words
//	 8      8  objects, buckets or words
//	16      4  bytes of an object's place, of a bucket, or of a word's place
//	20      4  longest payload of an object, or key and value of an entry, or 8
//	24      8  run: random, another one each time when the state begins empty
//	32      8  seed of the hashes
//	64     32  mark: an object whose payload is position 8, entries 8
//
// The head does not change, except the mark. Objects, buckets or words follow.
//
// An object:
//
//	 0      8  version: odd while it is written
//	 8      4  length of the payload; 2³² - 1: there is none
//	12      4  CRC-32C of version, length and payload
//	16         payload
//
// A bucket has four entries, see keyEntry:
//
//	 0      8  version: odd while it is written
//	 8      4  CRC-32C of version, used and all entries
//	12      4  used: bits 0 to 3 for the entries
//	16  4·124  entries
//
// A word is 8 bytes at the beginning of a cache line of its own. No processor stores to it: peers change it by
// fetch-and-add and compare-and-swap, which are atomic only towards other operations of the same device.
//
// Who maps the memory copies, and believes the copy if the version was even before and is the same behind. Who READs it
// gets bytes in no promised order, and believes only the checksum.
const (
	stateMagic  = 0x41545375 // "uSTA"
	markAt      = 64
	markPayload = 16
	// StateHeadLen is the length of the head of a state in bytes, of which StateHeadUsed have a meaning.
	StateHeadLen  = 4096
	StateHeadUsed = markAt + ObjectHeader + markPayload
	// ObjectHeader is the length of what an object has before its payload.
	ObjectHeader = 16
	// MaxRoom is the longest payload of an object.
	MaxRoom = 1 << 20
	// maxPlaces bounds objects and buckets, and maxStateLen the memory of a state.
	maxPlaces   = 1 << 30
	maxStateLen = 1 << 36
	noPayload   = ^uint32(0)
	// WordLen is the length of a word in bytes.
	WordLen   = 8
	placeUnit = 64
)

// StateKind says what a state has.
type StateKind uint32

// The kinds.
const (
	Objects StateKind = 1
	Keys    StateKind = 2
	Words   StateKind = 3
)

func (k StateKind) String() string {
	switch k {
	case Objects:
		return "objects"
	case Keys:
		return "keys"
	case Words:
		return "words"
	}
	return "unknown"
}

// StateHead is the part of a state's head that does not change.
type StateHead struct {
	Kind   StateKind
	Places uint64 // objects, buckets or words
	Stride uint32 // bytes of each
	Room   uint32 // the longest payload of an object, or key and value of an entry, or the bytes of a word
	Run    uint64 // of the writer: another one when the state has begun empty again
	Seed   uint64 // of the hashes
}

// ObjectsHead returns the head of a state of objects with payloads of up to room bytes.
func ObjectsHead(objects uint64, room uint32, run uint64) StateHead {
	return StateHead{Kind: Objects, Places: objects, Stride: (ObjectHeader + room + placeUnit - 1) &^ (placeUnit - 1), Room: room, Run: run}
}

// KeysHead returns the head of a state that has room for so many keys: four fifths of its entries.
func KeysHead(keys, run, seed uint64) StateHead {
	return StateHead{Kind: Keys, Places: max(2, (keys*5+15)/16), Stride: BucketLen, Room: MaxKeyValue, Run: run, Seed: seed}
}

// WordsHead returns the head of a state of words.
func WordsHead(words, run uint64) StateHead {
	return StateHead{Kind: Words, Places: words, Stride: placeUnit, Room: WordLen, Run: run}
}

// Len returns the length of the whole state in bytes.
func (h *StateHead) Len() uint64 { return StateHeadLen + h.Places*uint64(h.Stride) }

// At returns the offset of an object, bucket or word.
func (h *StateHead) At(place uint64) uint64 { return StateHeadLen + place*uint64(h.Stride) }

// ErrState says that memory is not that of a state.
var ErrState = errors.New("this is not the memory of a state")

// ParseStateHead parses the head of a state that has size bytes.
func ParseStateHead(b []byte, size uint64) (StateHead, error) {
	if len(b) < markAt || le.Uint32(b) != stateMagic {
		return StateHead{}, ErrState
	}
	h := StateHead{StateKind(le.Uint32(b[4:])), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint64(b[24:]), le.Uint64(b[32:])}
	want := h
	switch h.Kind {
	case Objects:
		want = ObjectsHead(h.Places, min(h.Room, MaxRoom), h.Run)
		want.Seed = h.Seed
	case Keys:
		want.Stride, want.Room = BucketLen, MaxKeyValue
	case Words:
		want = WordsHead(h.Places, h.Run)
		want.Seed = h.Seed
	default:
		return h, fmt.Errorf("%w: kind %d", ErrState, h.Kind)
	}
	if h != want || h.Places == 0 || h.Kind == Keys && h.Places < 2 || h.Places > maxPlaces || h.Run == 0 || h.Len() > size || size > maxStateLen {
		return h, fmt.Errorf("%w: its head is damaged", ErrState)
	}
	return h, nil
}

// State is one process's view of a state in memory. Any number of threads may read with it, and one may write.
type State struct {
	StateHead
	memory []byte
	path   search   // of the writer
	head   [12]byte // of the writer: what a checksum begins with
}

// NewState lays out a new, empty state in memory. The caller writes it.
func NewState(memory []byte, h StateHead) *State {
	s := &State{StateHead: h, memory: memory}
	le.PutUint32(memory[4:], uint32(h.Kind))
	le.PutUint64(memory[8:], h.Places)
	le.PutUint32(memory[16:], h.Stride)
	le.PutUint32(memory[20:], h.Room)
	le.PutUint64(memory[24:], h.Run)
	le.PutUint64(memory[32:], h.Seed)
	s.SetMark(Mark{})
	for n := range h.Places {
		b := s.place(n)
		switch h.Kind {
		case Keys:
			le.PutUint32(b[8:], bucketSum(b))
		case Words:
			wordAt(b, 0).Store(0)
		default:
			wordAt(b, 8).Store(uint64(noPayload) | uint64(s.sum(0, noPayload, nil))<<32)
		}
	}
	le.PutUint32(memory, stateMagic)
	return s
}

// ReadState returns a view of a state that another process writes.
func ReadState(memory []byte) (*State, error) {
	h, err := ParseStateHead(memory, uint64(len(memory)))
	if err != nil {
		return nil, err
	}
	return &State{StateHead: h, memory: memory}, nil
}

// place returns an object or bucket.
func (s *State) place(n uint64) []byte {
	start := s.At(n)
	return s.memory[start : start+uint64(s.Stride) : start+uint64(s.Stride)]
}

// Outcome says what a reader has found.
type Outcome int

// What a reader can find.
const (
	Have   Outcome = iota // it was copied
	Absent                // there is none
	Torn                  // it was written meanwhile: look again
	Short                 // the reader's memory is shorter than the payload
)

// Tries is how often a reader looks again at what is being written, before it says ErrAgain.
const Tries = 100

// The errors of readers.
var (
	ErrAgain    = errors.New("it is being written, as often as it was looked at: try again later")
	ErrNotFound = errors.New("there is none")
	ErrShort    = errors.New("the memory for it is too short")
	ErrKind     = errors.New("the state is of another kind")
	ErrObject   = errors.New("the state has no object of that number")
	ErrKey      = errors.New("a key has 1 to 120 bytes")
	ErrWord     = errors.New("the state has no word of that number")
)

// Err returns the error of an outcome, nil for Have.
func (o Outcome) Err() error {
	switch o {
	case Have:
		return nil
	case Absent:
		return ErrNotFound
	case Short:
		return ErrShort
	}
	return ErrAgain
}

// Mark says what a state has.
type Mark struct {
	Position uint64 // of the last update that was applied, or refused
	Entries  uint64 // objects or keys that are there
}

// ReadMark copies the mark. What is read after it has at least the updates up to its position.
func (s *State) ReadMark() (Mark, Outcome) {
	var b [markPayload]byte
	n, _, o := get(s.memory[markAt:markAt+ObjectHeader+markPayload], b[:])
	if o != Have || n != markPayload {
		return Mark{}, Torn
	}
	return Mark{le.Uint64(b[:]), le.Uint64(b[8:])}, Have
}

// SetMark writes the mark. Only the writer calls it.
func (s *State) SetMark(m Mark) {
	var b [markPayload]byte
	le.PutUint64(b[:], m.Position)
	le.PutUint64(b[8:], m.Entries)
	s.put(s.memory[markAt:markAt+ObjectHeader+markPayload], b[:])
}

// CheckMark returns the mark of a copy of a head.
func CheckMark(head []byte) (Mark, Outcome) {
	p, _, o := CheckObject(head[markAt : markAt+ObjectHeader+markPayload])
	if o != Have || len(p) != markPayload {
		return Mark{}, Torn
	}
	return Mark{le.Uint64(p), le.Uint64(p[8:])}, Have
}

// Word returns a word, whose number must be less than Places.
func (s *State) Word(n uint64) uint64 { return wordAt(s.place(n), 0).Load() }

// Get copies the payload of an object, whose number must be less than Places, into dst. The version goes up by two with
// each write.
func (s *State) Get(object uint64, dst []byte) (n int, version uint64, o Outcome) {
	return get(s.place(object), dst)
}

// get copies the payload of an object, if it is whole.
func get(b, dst []byte) (n int, version uint64, o Outcome) {
	v := wordAt(b, 0)
	version = v.Load()
	length := uint32(wordAt(b, 8).Load())
	switch {
	case version&1 != 0:
		return 0, 0, Torn
	case length == noPayload:
		o = Absent
	case uint64(length) > uint64(len(b)-ObjectHeader):
		return 0, 0, Torn
	case uint64(length) > uint64(len(dst)):
		o = Short
	default:
		n = copy(dst, b[ObjectHeader:ObjectHeader+length])
	}
	fence()
	if v.Load() != version {
		return 0, 0, Torn
	}
	return n, version, o
}

// CheckObject returns the payload of a copy of an object, if its checksum is right.
func CheckObject(b []byte) (payload []byte, version uint64, o Outcome) {
	version = le.Uint64(b)
	length, sum := le.Uint32(b[8:]), le.Uint32(b[12:])
	if length != noPayload {
		if uint64(length) > uint64(len(b)-ObjectHeader) {
			return nil, 0, Torn
		}
		payload = b[ObjectHeader : ObjectHeader+length]
	}
	if version&1 != 0 || crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, payload) != sum {
		return nil, 0, Torn
	}
	if length == noPayload {
		return nil, version, Absent
	}
	return payload, version, Have
}

// PutObject writes the payload of an object, at most Room bytes, and reports whether it is new. The payload may change
// meanwhile. Only the writer calls it.
func (s *State) PutObject(object uint64, payload []byte) (added bool) {
	return s.put(s.place(object), payload)
}

// DeleteObject removes the payload of an object, and reports whether there was one. Only the writer calls it.
func (s *State) DeleteObject(object uint64) bool {
	b := s.place(object)
	if uint32(wordAt(b, 8).Load()) == noPayload {
		return false
	}
	version := begin(b)
	clear(b[ObjectHeader:])
	wordAt(b, 8).Store(uint64(noPayload) | uint64(s.sum(version, noPayload, nil))<<32)
	wordAt(b, 0).Store(version)
	return true
}

// begin says that a place is being written, and returns the version that it has afterwards.
func begin(b []byte) uint64 {
	v := wordAt(b, 0)
	now := v.Load()
	v.Store(now + 1)
	fence() // who sees a changed byte sees the odd version behind its copy
	return now + 2
}

// put writes a payload. The checksum is that of the bytes that are written.
func (s *State) put(b, payload []byte) (added bool) {
	added = uint32(wordAt(b, 8).Load()) == noPayload
	version := begin(b)
	n := copy(b[ObjectHeader:], payload)
	sum := s.sum(version, uint32(n), b[ObjectHeader:ObjectHeader+n])
	wordAt(b, 8).Store(uint64(n) | uint64(sum)<<32)
	wordAt(b, 0).Store(version)
	return added
}

// sum is the checksum of a version, a word and what follows. Only the writer calls it.
func (s *State) sum(version uint64, word uint32, rest []byte) uint32 {
	le.PutUint64(s.head[:], version)
	le.PutUint32(s.head[8:], word)
	return crc32.Update(crc32.Checksum(s.head[:], castagnoli), castagnoli, rest)
}
