package bpf

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mappedWord is a 32-bit word of a BPF map, mapped read-only. The XDP program
// writes it, from any CPU; user space only loads it.
type mappedWord struct {
	memory []byte
	word   *atomic.Uint32
}

// mapWord maps the word at offset, in bytes, of the map's first value. The
// caller unmaps it with close.
func mapWord(m *ebpf.Map, offset uint32) (*mappedWord, error) {
	if offset%4 != 0 || uint64(offset)+4 > uint64(m.ValueSize()) {
		return nil, fmt.Errorf("word at byte %d of a value of %d bytes", offset, m.ValueSize())
	}
	page := uint64(os.Getpagesize())
	size := (uint64(m.ValueSize()) + page - 1) / page * page
	memory, err := unix.Mmap(m.FD(), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	// This is sound. The mapping begins at a page and outlives every use of word (close forbids
	// later ones). The offset is aligned and inside the mapping. Memory that the Go heap does not
	// own never moves.
	return &mappedWord{memory, (*atomic.Uint32)(unsafe.Pointer(&memory[offset]))}, nil
}

// close unmaps the word. word must not be used after it.
func (w *mappedWord) close() error {
	w.word = nil
	if err := unix.Munmap(w.memory); err != nil {
		return fmt.Errorf("unmap the status word of the XDP program: %w", err)
	}
	return nil
}
