//go:build (amd64 || arm64) && !race

// Package release stores with release order: a thread that loads the new value sees all earlier
// reads and writes. That is what an index of a ring between two threads, or with the kernel, needs
// (smp_store_release in net/xdp/xsk_queue.h). sync/atomic has only sequentially consistent stores,
// which on amd64 wait until all earlier stores have their cache lines. Later loads may be older
// than the store; where that matters, use a barrier.
package release

import "sync/atomic"

// Store32 stores v. Others load the word by its methods.
//
//go:noescape
func Store32(word *atomic.Uint32, v uint32)

// Store64 likewise.
//
//go:noescape
func Store64(word *atomic.Uint64, v uint64)
