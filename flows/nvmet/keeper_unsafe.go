package nvmet

import (
	"sync/atomic"
	"unsafe"
)

// word returns a word of the first page, which every server of the file may write.
func (k *keeper) word(offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&k.page[offset : offset+8 : offset+8][0]))
}
