// Package align rounds sizes up.
package align

import "math/bits"

// Up rounds n up to a multiple of to.
func Up[T ~int | ~uint32 | ~uint64](n, to T) T { return (n + to - 1) / to * to }

// PowerOfTwo returns the smallest power of two that is at least n.
func PowerOfTwo[T ~int | ~uint32 | ~uint64](n T) T { return 1 << bits.Len64(uint64(max(n, 1)-1)) }
