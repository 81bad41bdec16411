package umem

import (
	"errors"
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
