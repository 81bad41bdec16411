package trace

import "unsafe"

// view makes b, which is mapped and has fileLen bytes, the recorder's. Mappings begin at a page, and all records at
// a multiple of their alignment.
func (r *Recorder) view(b []byte, rounds, notes uint32) {
	r.header = (*header)(unsafe.Pointer(&b[0]))
	r.live = &r.header.live
	r.rounds = unsafe.Slice((*roundRecord)(unsafe.Pointer(&b[headerLen])), rounds)
	r.notes = unsafe.Slice((*noteRecord)(unsafe.Pointer(&b[headerLen+int(rounds)*roundLen])), notes)
}

// The layout in doc.go is that of the types.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(roundRecord{})-roundLen]
	_ = [1]struct{}{}[unsafe.Sizeof(noteRecord{})-noteLen]
	_ = [1]struct{}{}[unsafe.Offsetof(header{}.live)-liveAt]
	_ = [1]struct{}{}[unsafe.Offsetof(header{}.noted)-notedAt]
	_ = [1]struct{}{}[unsafe.Sizeof(header{})-nameAt]
)

// publish stores a number of records after the records: readers of other processes load it before and after they
// copy the ring.
func publish(word *uint64, n uint64) { storeRelease((*atomicWord)(unsafe.Pointer(word)), n) }
