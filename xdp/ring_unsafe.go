package xdp

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// A descriptor of the rx and tx rings is a umem.Frame, bit for bit.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(umem.Frame{})-unsafe.Sizeof(unix.XDPDesc{})]
	_ = [1]struct{}{}[unsafe.Offsetof(umem.Frame{}.Len)-unsafe.Offsetof(unix.XDPDesc{}.Len)]
	_ = [1]struct{}{}[unsafe.Offsetof(umem.Frame{}.Options)-unsafe.Offsetof(unix.XDPDesc{}.Options)]
)

// mapRing maps a ring of n slots that begins at pageOffset of the socket's file. The offsets are
// those of XDP_MMAP_OFFSETS. The caller unmaps it with unmap.
func mapRing[T uint64 | umem.Frame](fd int, pageOffset int64, off unix.XDPRingOffset, n uint32) (ring, []T, error) {
	var slot T
	size := off.Desc + uint64(n)*uint64(unsafe.Sizeof(slot))
	if off.Desc > 1<<16 {
		return ring{}, nil, fmt.Errorf("ring slots at byte %d of the mapping", off.Desc)
	}
	memory, err := unix.Mmap(fd, pageOffset, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring{}, nil, err
	}
	r := ring{memory: memory, size: n}
	for at, word := range map[uint64]**atomic.Uint32{off.Producer: &r.producer, off.Consumer: &r.consumer, off.Flags: &r.flags} {
		if *word, err = wordAt(memory, at); err != nil {
			return ring{}, nil, r.giveUp(err)
		}
	}
	slots, err := slotsAt[T](memory, off.Desc, n)
	if err != nil {
		return ring{}, nil, r.giveUp(err)
	}
	return r, slots, nil
}

// wordAt returns the 32-bit word at an offset of the mapping.
func wordAt(memory []byte, at uint64) (*atomic.Uint32, error) {
	if at%4 != 0 || !inside(memory, at, 4) {
		return nil, fmt.Errorf("ring word at byte %d of a mapping of %d", at, len(memory))
	}
	// Sound: the word is inside the mapping and aligned, because mappings begin at a page. The
	// memory is not of the Go heap and stays until unmap, after which no verb runs.
	return (*atomic.Uint32)(unsafe.Pointer(&memory[at])), nil
}

// slotsAt returns the n slots at an offset of the mapping.
func slotsAt[T uint64 | umem.Frame](memory []byte, at uint64, n uint32) ([]T, error) {
	var slot T
	if at%uint64(unsafe.Alignof(slot)) != 0 || n == 0 || !inside(memory, at, uint64(n)*uint64(unsafe.Sizeof(slot))) {
		return nil, fmt.Errorf("%d ring slots at byte %d of a mapping of %d", n, at, len(memory))
	}
	// Sound: as in wordAt, and no slot type has pointers.
	return unsafe.Slice((*T)(unsafe.Pointer(&memory[at])), n), nil
}

// fetch reads a descriptor, whatever it contains, to bring it into this processor's cache.
func fetch(slot *umem.Frame) {
	// Sound: Addr is aligned, and only the kernel writes it at the same time. The compiler would
	// remove a plain load, because its result is not used.
	(*atomic.Uint64)(unsafe.Pointer(&slot.Addr)).Load()
}

// inside reports whether n bytes at an offset are in the mapping.
func inside(memory []byte, at, n uint64) bool {
	size := uint64(len(memory))
	return n <= size && at <= size-n
}
