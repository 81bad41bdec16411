package wire

import "slices"

// UpdateHeader is the length of the header of an update: a message that changes a state.
//
//	 0      1  operation: 1 put, 2 delete
//	 1      1  length of the key; 0 for an object
//	 2      6  0
//	 8      8  number of the object; 0 for a key
//	16         key, then the payload of a put
const UpdateHeader = 16

// Operations of updates.
const (
	opPut    = 1
	opDelete = 2
)

// UpdateReason says why an update is refused. It is an index, and a word in metrics.
type UpdateReason uint8

// The reasons.
const (
	Applied    UpdateReason = iota
	BadUpdate               // shorter than its header, another operation, or bytes that must be 0
	BadObject               // no object has that number, or the state has keys
	BadKey                  // no key, a longer one than the message, or the state has objects
	UpdateLong              // the payload is longer than an object, or key and value than an entry
	Full                    // there are as many keys as the state is configured for
	NoPlace                 // no entry is free, nor made so by a bounded number of moves

	UpdateReasons // how many there are
)

var updateReasons = [UpdateReasons]string{"applied", "bad_update", "bad_object", "bad_key", "too_long", "full", "no_place"}

func (r UpdateReason) String() string { return updateReasons[r] }

// AppendPutObject appends an update that writes an object.
func AppendPutObject(b []byte, object uint64, payload []byte) []byte {
	return append(appendUpdate(b, opPut, 0, object), payload...)
}

// AppendDeleteObject appends an update that removes an object's payload.
func AppendDeleteObject(b []byte, object uint64) []byte { return appendUpdate(b, opDelete, 0, object) }

// AppendPutKey appends an update that writes the value of a key of 1 to MaxKeyValue bytes.
func AppendPutKey(b, key, value []byte) []byte {
	return append(append(appendUpdate(b, opPut, len(key), 0), key...), value...)
}

// AppendDeleteKey appends an update that removes a key.
func AppendDeleteKey(b, key []byte) []byte {
	return append(appendUpdate(b, opDelete, len(key), 0), key...)
}

func appendUpdate(b []byte, op byte, key int, object uint64) []byte {
	b = slices.Grow(b, UpdateHeader)
	b = append(b, op, byte(key), 0, 0, 0, 0, 0, 0)
	return le.AppendUint64(b, object)
}

// Writer applies updates to a state. It belongs to one thread at a time.
type Writer struct {
	*State
	limit   uint64 // keys
	entries uint64
	scratch [MaxKeyValue]byte
}

// NewWriter returns the writer of a new state, which takes at most that many keys.
func NewWriter(s *State, keys uint64) *Writer { return &Writer{State: s, limit: keys} }

// Entries returns how many objects or keys are there.
func (w *Writer) Entries() uint64 { return w.entries }

// Apply applies an update. Another process may write the message meanwhile: each byte is read once, or checked in a copy.
// It returns how many bytes of payload it has copied.
func (w *Writer) Apply(message []byte) (copied int, why UpdateReason) {
	if len(message) < UpdateHeader {
		return 0, BadUpdate
	}
	first, object := le.Uint64(message), le.Uint64(message[8:])
	op, key, rest := byte(first), int(byte(first>>8)), message[UpdateHeader:]
	if first>>16 != 0 || op != opPut && op != opDelete || op == opDelete && len(rest) != key {
		return 0, BadUpdate
	}
	if w.Kind == Objects {
		return w.applyObject(op, key, object, rest)
	}
	return w.applyKey(op, key, object, rest)
}

func (w *Writer) applyObject(op byte, key int, object uint64, payload []byte) (copied int, why UpdateReason) {
	switch {
	case key != 0:
		return 0, BadKey
	case object >= w.Places:
		return 0, BadObject
	case op == opDelete:
		if w.DeleteObject(object) {
			w.entries--
		}
		return 0, Applied
	case uint64(len(payload)) > uint64(w.Room):
		return 0, UpdateLong
	}
	if w.PutObject(object, payload) {
		w.entries++
	}
	return len(payload), Applied
}

func (w *Writer) applyKey(op byte, key int, object uint64, rest []byte) (copied int, why UpdateReason) {
	switch {
	case object != 0:
		return 0, BadObject
	case key == 0 || key > len(rest):
		return 0, BadKey
	case len(rest) > MaxKeyValue:
		return 0, UpdateLong
	}
	rest = w.scratch[:copy(w.scratch[:], rest)]
	if op == opDelete {
		if w.DeleteKey(rest) {
			w.entries--
		}
		return 0, Applied
	}
	if w.entries >= w.limit && !w.has(rest[:key]) {
		return 0, Full
	}
	added, ok := w.PutKey(rest[:key], rest[key:])
	if !ok {
		return 0, NoPlace
	}
	if added {
		w.entries++
	}
	return len(rest), Applied
}

// has reports whether a key is there.
func (w *Writer) has(key []byte) bool {
	i, k := w.Buckets(key)
	a, b := w.place(i), w.place(k)
	return find(a, used(a), key) >= 0 || find(b, used(b), key) >= 0
}
