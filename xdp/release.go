//go:build amd64 || arm64

package xdp

import "sync/atomic"

// storeRelease32 and storeRelease64 store with release order: what was read and
// written before is so for whoever sees the new value. sync/atomic has sequentially
// consistent stores only, which on amd64 wait until every earlier store has got its
// cache line from the kernel's CPU; here nothing waits, as in the kernel's own rings
// (smp_store_release in net/xdp/xsk_queue.h). What is read next may be older than
// the store: who needs otherwise puts a barrier between (Port.Kick).

//go:noescape
func storeRelease32(word *atomic.Uint32, v uint32)

//go:noescape
func storeRelease64(word *atomic.Uint64, v uint64)
