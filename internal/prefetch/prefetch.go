//go:build amd64 || arm64

// Package prefetch brings memory into the cache of the calling processor before the program reads it. It is a
// hint: it does not read, it never faults, and it is invisible to the race detector.
package prefetch

// Begin prefetches the cache line at p and the two after it.
//
//go:noescape
func Begin(p *byte)

// Span prefetches the cache lines of the n bytes at p.
//
//go:noescape
func Span(p *byte, n uint32)
