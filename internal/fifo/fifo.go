// Package fifo is a queue of values in a ring, for one goroutine.
package fifo

import "math/bits"

// Ring is a queue whose capacity is a power of two. The zero value has no room. It does not grow, and Push does not check
// that there is room.
type Ring[T any] struct {
	items      []T
	head, tail uint32
}

// New returns a ring with room for at least n values.
func New[T any](n int) Ring[T] { return Ring[T]{items: make([]T, 1<<bits.Len(uint(max(n-1, 0))))} }

// Cap returns how many values there is room for.
func (r *Ring[T]) Cap() int { return len(r.items) }

// Len returns how many values are in the ring.
func (r *Ring[T]) Len() int { return int(r.tail - r.head) }

// At returns the value i places behind the oldest one, which must be there.
func (r *Ring[T]) At(i int) *T { return &r.items[(r.head+uint32(i))&uint32(len(r.items)-1)] }

// Push adds a value.
func (r *Ring[T]) Push(v T) {
	r.items[r.tail&uint32(len(r.items)-1)] = v
	r.tail++
}

// Pop removes the oldest value, which must be there.
func (r *Ring[T]) Pop() T {
	v := *r.At(0)
	r.head++
	return v
}

// Read moves the oldest values to dst, and returns how many.
func (r *Ring[T]) Read(dst []T) int {
	n := min(len(dst), r.Len())
	for i := range dst[:n] {
		dst[i] = r.Pop()
	}
	return n
}

// Front returns at most most of the oldest values that are contiguous. Skip removes them.
func (r *Ring[T]) Front(most int) []T {
	at := int(r.head & uint32(len(r.items)-1))
	n := min(r.Len(), len(r.items)-at, most)
	return r.items[at : at+n]
}

// Skip removes the n oldest values.
func (r *Ring[T]) Skip(n int) { r.head += uint32(n) }
