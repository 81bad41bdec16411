package transport

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns the word of the region at addr. The caller has checked addr, which is a multiple
// of 8. The region begins at a page, so the word is aligned. Several engines may use it at once.
func wordAt(data []byte, addr uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&data[addr : addr+8][0]))
}

// compareSwap stores next if the word is old, and returns what it was.
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
