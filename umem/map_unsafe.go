package umem

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressRange is addresses that nothing else is mapped at. Parts of a region are mapped into it one after
// the other, so that devices see one piece of memory.
type addressRange struct {
	start  unsafe.Pointer // outside the Go heap
	length uint64
}

// reserveRange reserves length bytes of addresses. Both are multiples of align, a power of two.
func reserveRange(length, align uint64) (a addressRange, err error) {
	whole := length + align
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(whole), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return a, fmt.Errorf("map %d bytes: %w", length, err)
	}
	before := uint64(-uintptr(p)) & (align - 1)
	a = addressRange{unsafe.Add(p, before), length}
	if before > 0 {
		err = unix.MunmapPtr(p, uintptr(before))
	}
	if after := align - before; after > 0 {
		err = errors.Join(err, unix.MunmapPtr(unsafe.Add(a.start, length), uintptr(after)))
	}
	if err != nil {
		return a, errors.Join(fmt.Errorf("return addresses: %w", err), a.unmap())
	}
	return a, nil
}

// mapAt maps size bytes of a file at an offset in the range, shared and writable.
//
// The file is mapped elsewhere first, and moved. When there are no huge pages for a mapping at fixed addresses, the kernel
// has removed already what was there (vms_abort_munmap_vmas in mm/vma.c). The C library may then put a heap of another
// thread there, over which the next try, or unmap, would go.
func (a addressRange) mapAt(offset, size uint64, f *os.File) ([]byte, error) {
	p, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	at := unsafe.Add(a.start, offset)
	if _, err := unix.MremapPtr(p, uintptr(size), at, uintptr(size), unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED); err != nil {
		return nil, errors.Join(fmt.Errorf("move a mapping of %d bytes: %w", size, err), unix.MunmapPtr(p, uintptr(size)))
	}
	return unsafe.Slice((*byte)(at), size), nil
}

// bytes returns the whole range. Each byte must be mapped.
func (a addressRange) bytes() []byte { return unsafe.Slice((*byte)(a.start), a.length) }

// unmap gives up the addresses and all that is mapped there.
func (a addressRange) unmap() error { return unix.MunmapPtr(a.start, uintptr(a.length)) }
