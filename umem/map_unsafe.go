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
// A mapping at fixed addresses must not fail: the kernel has removed by then what was there
// (vms_abort_munmap_vmas in mm/vma.c), and the C library may put a heap of another thread there. So the file
// is mapped elsewhere first, which fails if there are no huge pages. The pages then belong to the file, and
// a second mapping needs no more. mremap would do it in one step, but it fails for 4 GiB of huge pages and more:
// move_hugetlb_page_tables in mm/hugetlb.c returns an int.
func (a addressRange) mapAt(offset, size uint64, f *os.File) ([]byte, error) {
	const rights = unix.PROT_READ | unix.PROT_WRITE
	first, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(size), rights, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	at := unsafe.Add(a.start, offset)
	_, err = unix.MmapPtr(int(f.Fd()), 0, at, uintptr(size), rights, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		a.reserveAgain(at, size)
		err = fmt.Errorf("map %d bytes at %p: %w", size, at, err)
	}
	if err := errors.Join(err, unix.MunmapPtr(first, uintptr(size))); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), size), nil
}

// reserveAgain closes the gap that a mapping leaves that failed. Another thread may have got these addresses
// already. The process must end then: the region would map its memory over that thread's.
func (a addressRange) reserveAgain(at unsafe.Pointer, size uint64) {
	const reserved = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	got, err := unix.MmapPtr(-1, 0, at, uintptr(size), unix.PROT_NONE, reserved|unix.MAP_FIXED_NOREPLACE)
	if err != nil || got != at {
		panic(fmt.Sprintf("umem: %d bytes of addresses at %p were lost when a mapping failed: %v", size, at, err))
	}
}

// bytes returns the whole range. Each byte must be mapped.
func (a addressRange) bytes() []byte { return unsafe.Slice((*byte)(a.start), a.length) }

// unmap gives up the addresses and all that is mapped there.
func (a addressRange) unmap() error { return unix.MunmapPtr(a.start, uintptr(a.length)) }

// Policies and flags of include/uapi/linux/mempolicy.h.
const (
	mpolBind    = 2
	maxNodes    = 1024 // CONFIG_NODES_SHIFT is at most 10
	bitsPerWord = 64
)

// bind makes every page of b come from one NUMA node. The kernel reads the mask only during the call.
func bind(b []byte, node int) error {
	if node < 0 || node >= maxNodes {
		return fmt.Errorf("there is no node %d: %w", node, unix.EINVAL)
	}
	var mask [maxNodes / bitsPerWord]uint64
	mask[node/bitsPerWord] = 1 << (node % bitsPerWord)
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		mpolBind, uintptr(unsafe.Pointer(&mask)), maxNodes+1, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// placementBatch is the number of pages that one call asks about.
const placementBatch = 1024

// Placement counts the region's bytes by the NUMA node where they really are, according to move_pages(2).
func (r *Region) Placement() (map[int]uint64, error) {
	where := make(map[int]uint64)
	err := askPlacement(where, r.data[:r.size], r.pages.Bytes())
	for _, s := range r.slices {
		if s.In != nil {
			err = errors.Join(err, askPlacement(where, r.At(s.In.base, s.In.size), r.partPages.Bytes()))
		}
		if s.Out != nil {
			err = errors.Join(err, askPlacement(where, r.At(s.Out.base, s.Out.size), Ordinary.Bytes()))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ask where the region lies: %w", err)
	}
	return where, nil
}

func askPlacement(where map[int]uint64, memory []byte, page uint64) error {
	for step := page * placementBatch; len(memory) > 0; {
		n := min(step, uint64(len(memory)))
		if err := addPlacement(where, memory[:n], page); err != nil {
			return err
		}
		memory = memory[n:]
	}
	return nil
}

// addPlacement adds the pages of memory, at most placementBatch.
func addPlacement(where map[int]uint64, memory []byte, page uint64) error {
	var addrs [placementBatch]uintptr
	var status [placementBatch]int32
	n := uint64(len(memory)) / page
	for i := range n {
		// Sound: these are addresses in a mapping, which the heap does not move. The kernel reads
		// them only during the call.
		addrs[i] = uintptr(unsafe.Pointer(&memory[i*page]))
	}
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(n), uintptr(unsafe.Pointer(&addrs)), 0, uintptr(unsafe.Pointer(&status)), 0)
	if errno != 0 {
		return errno
	}
	for i, node := range status[:n] {
		if node < 0 {
			return fmt.Errorf("page %d: %w", i, unix.Errno(-node))
		}
		where[int(node)] += page
	}
	return nil
}
