// Package umem owns the region: one piece of huge-page memory that every
// device reads and writes in place.
//
// A region is cut into frames of 2048 or 4096 bytes and, behind them, into
// extents, runs of adjacent frames for block I/O. A [Frame] names bytes by their
// offset in the region, in the layout of the kernel's struct xdp_desc, so that
// the same sixteen bytes travel from a receive ring to a disk queue unchanged.
//
// Ownership. Every frame has exactly one holder at every moment: the pool, a
// device's queue, or a worker. Passing a frame passes ownership, and a [Book]
// records it; the holders' counts always add up to the number of frames, which
// [Region.Audit] checks frame by frame and [Region.Snapshot] reads while traffic
// flows. Built with -tags invariants (or -race) every pass is checked, and frames
// that go back to the pool are filled with 0xCC.
//
// Threads. A Region and its pool may be used from any goroutine. A Book, its
// Holders and the Ports that use them belong to one thread at a time.
//
// Lifetime. Memory handed to a device is mapped outside the Go heap and stays
// until Close, which refuses while a device still has it registered.
//
// The oldest kernel is 6.1 (MADV_POPULATE_WRITE, memfd on huge pages).
package umem
