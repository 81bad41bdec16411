package nvme

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Sizes of the shared structures, in bytes.
const (
	sqeSize   = uint64(unsafe.Sizeof(sqe{}))
	cqeSize   = uint64(unsafe.Sizeof(cqe{}))
	iovecSize = uint64(unsafe.Sizeof(iovec{}))
	dsmSize   = uint64(unsafe.Sizeof(dsmRange{}))
	waitSize  = uint64(unsafe.Sizeof(waitLayout{}))

	// sqeHead is the bytes of a submission before a command in it.
	sqeHead = uint64(unsafe.Offsetof(sqe{}.addr3))
)

// waitLayout is the argument of a wait with a limit.
type waitLayout struct {
	arg   getEventsArg
	limit timespec
}

// address is where b starts. The memory is mapped, so it does not move.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// word is the shared 32-bit word at an offset in mapped memory. It panics where
// the word would leave the memory or not be aligned.
func word(mem []byte, off uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(at(mem, uint64(off), 4, 4))
}

// entriesOf views n entries at an offset in mapped memory, which holds no Go
// pointers. It panics where they would leave it.
func entriesOf[T sqe | cqe | iovec | dsmRange](mem []byte, off, n uint64) []T {
	var one T
	size := uint64(unsafe.Sizeof(one))
	return unsafe.Slice((*T)(at(mem, off, n*size, 8)), n)
}

// commandAt is the command at an offset in mapped memory. It panics where the command
// would leave it.
func commandAt(mem []byte, off uint64) *nvmeCommand {
	return (*nvmeCommand)(at(mem, off, uint64(unsafe.Sizeof(nvmeCommand{})), 8))
}

// rangeAddress is where a range to discard lies, in scratch memory.
func rangeAddress(r *dsmRange) uint64 { return uint64(uintptr(unsafe.Pointer(r))) }

// waitArg places the argument of a wait in mapped memory and points it to its
// limit.
func waitArg(mem []byte) ([]byte, *timespec) {
	w := (*waitLayout)(at(mem, 0, waitSize, 8))
	w.arg.ts = uint64(uintptr(unsafe.Pointer(&w.limit)))
	return mem[:unsafe.Sizeof(w.arg)], &w.limit
}

// at is the one place where mapped bytes become something else. It is sound for
// memory mapped outside the Go heap, which is aligned to pages and does not move,
// within the bounds checked here.
func at(mem []byte, off, size, align uint64) unsafe.Pointer {
	if off > uint64(len(mem)) || size > uint64(len(mem))-off {
		panic(fmt.Sprintf("nvme: %d bytes at %d leave memory of %d bytes", size, off, len(mem)))
	}
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off)
	if uint64(uintptr(p))%align != 0 {
		panic(fmt.Sprintf("nvme: memory at %d is not aligned to %d bytes", off, align))
	}
	return p
}

// vecsAddress is where a list of pieces lies, in scratch memory.
func vecsAddress(vecs []iovec) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(vecs)))) }
