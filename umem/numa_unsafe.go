package umem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Policies and flags of include/uapi/linux/mempolicy.h.
const (
	mpolBind    = 2
	maxNodes    = 1024 // CONFIG_NODES_SHIFT is at most 10
	bitsPerWord = 64
)

// bind makes every page of b come from one NUMA node. The mask is read by the
// kernel during the call only.
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

// Placement counts the region's bytes by the NUMA node they really lie on, as
// move_pages(2) tells it.
func (r *Region) Placement() (map[int]uint64, error) {
	page := r.pages.Bytes()
	where := make(map[int]uint64)
	for off := uint64(0); off < r.size; off += page {
		addr, status := uintptr(unsafe.Pointer(&r.data[off])), int32(0)
		_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, 1, uintptr(unsafe.Pointer(&addr)), 0, uintptr(unsafe.Pointer(&status)), 0)
		if errno != 0 {
			return nil, fmt.Errorf("ask where the region lies: %w", errno)
		}
		if status < 0 {
			return nil, fmt.Errorf("ask where the region lies: page at %#x: %w", off, unix.Errno(-status))
		}
		where[int(status)] += page
	}
	return where, nil
}
