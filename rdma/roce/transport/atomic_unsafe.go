package transport

import (
	"sync/atomic"
	"unsafe"
)

// wordAt is the word of the region at an address that is a multiple of 8 and has been checked. The region begins
// at a page, so the word is aligned; several engines may work on it at once.
func wordAt(data []byte, addr uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&data[addr : addr+8][0]))
}

// compareSwap stores next where the word is old, and returns what it was.
func compareSwap(word *atomic.Uint64, old, next uint64) uint64 {
	for {
		if word.CompareAndSwap(old, next) {
			return old
		}
		if was := word.Load(); was != old {
			return was
		}
	}
}
