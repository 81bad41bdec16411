//go:build (amd64 || arm64) && !race

// Package release stores with release order: what was read and written before is so for whoever loads the new value. It is what an
// index of a ring between two threads, or with the kernel, needs (smp_store_release in net/xdp/xsk_queue.h). sync/atomic has
// sequentially consistent stores only, which on amd64 wait until all earlier stores have got their cache lines. What is read next may
// be older than the store: who needs otherwise puts a barrier between.
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
