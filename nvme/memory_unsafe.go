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

	// sqeHead is the number of bytes of a submission before a command in it.
	sqeHead = uint64(unsafe.Offsetof(sqe{}.addr3))
)

// waitLayout is the argument of a wait with a limit.
type waitLayout struct {
	arg   getEventsArg
	limit timespec
}

// address returns the address of b. The memory is mapped, so it does not move.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// word returns the shared 32-bit word at an offset in mapped memory. It panics if the word would
// leave the memory or is not aligned.
func word(mem []byte, off uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(at(mem, uint64(off), 4, 4))
}

// entriesOf returns n entries at an offset in mapped memory, which contains no Go pointers. It
// panics if they would leave it.
func entriesOf[T sqe | cqe | iovec | dsmRange](mem []byte, off, n uint64) []T {
	var one T
	size := uint64(unsafe.Sizeof(one))
	return unsafe.Slice((*T)(at(mem, off, n*size, 8)), n)
}

// commandAt returns the command at an offset in mapped memory. It panics if the command would leave it.
func commandAt(mem []byte, off uint64) *nvmeCommand {
	return (*nvmeCommand)(at(mem, off, uint64(unsafe.Sizeof(nvmeCommand{})), 8))
}

// rangeAddress returns the address of a range to discard, in scratch memory.
func rangeAddress(r *dsmRange) uint64 { return uint64(uintptr(unsafe.Pointer(r))) }

// waitArg puts the argument of a wait into mapped memory. The argument points to its limit.
func waitArg(mem []byte) ([]byte, *timespec) {
	w := (*waitLayout)(at(mem, 0, waitSize, 8))
	w.arg.ts = uint64(uintptr(unsafe.Pointer(&w.limit)))
	return mem[:unsafe.Sizeof(w.arg)], &w.limit
}

// at is the only place that converts mapped bytes to another type. It is sound for memory mapped outside
// the Go heap, within the bounds that it checks: such memory is aligned to pages and does not move.
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

// vecsAddress returns the address of a list of pieces, in scratch memory.
func vecsAddress(vecs []iovec) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(vecs)))) }
