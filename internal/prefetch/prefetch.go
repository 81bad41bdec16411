//go:build amd64 || arm64

// Package prefetch brings memory into the cache of the processor that asks, ahead of when it is read. It is a hint: nothing is read, nothing
// faults, and the race detector sees nothing.
package prefetch

// Begin prefetches the cache line at p and the two after it.
func Begin(p *byte)

// Span brings the lines from that at p on to that of the last of n bytes.
//
//go:noescape
func Span(p *byte, n uint32)
