package counter

import (
	"sync/atomic"
	"unsafe"

	"github.com/unifiedd/unifiedd/internal/release"
)

// Published is a struct T of counters, numbers of 64 bits without pointers. One goroutine counts in Own, and publishes once per
// batch, so that a count costs no more than an addition. Any goroutine may call Load. The zero value is ready.
type Published[T any] struct{ Own, shown T }

// wordsOf are the numbers of t. Sound: T has no pointers, and each number is a word.
func wordsOf[T any](t *T) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(t)), unsafe.Sizeof(*t)/8)
}

// Publish shows the numbers that have changed. It does not write the others, so that readers keep their cache lines.
func (p *Published[T]) Publish() {
	own, shown := wordsOf(&p.Own), wordsOf(&p.shown)
	for i := range own {
		if n := own[i].Load(); shown[i].Load() != n {
			release.Store64(&shown[i], n)
		}
	}
}

// Load returns the numbers that were published last.
func (p *Published[T]) Load() (now T) {
	words, shown := wordsOf(&now), wordsOf(&p.shown)
	for i := range words {
		words[i].Store(shown[i].Load())
	}
	return now
}
