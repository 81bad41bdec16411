//go:build (amd64 || arm64) && !race

// Package release stores with release order: a thread that loads the new value sees all earlier
// reads and writes. An index of a ring that two threads, or a thread and the kernel, share needs
// this (smp_store_release in net/xdp/xsk_queue.h). sync/atomic has only sequentially consistent
// stores, which on amd64 wait until all earlier stores have their cache lines. Later loads may
// execute before the store. If that matters, use a barrier.
package release

import "sync/atomic"

// Store32 stores v. Other threads load the word with its methods.
//
//go:noescape
func Store32(word *atomic.Uint32, v uint32)

// Store64 stores v, as Store32 does.
//
//go:noescape
func Store64(word *atomic.Uint64, v uint64)
