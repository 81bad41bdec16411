// Package umem owns the region: one piece of huge-page memory that all devices read and write in
// place.
//
// A region is divided into frames of 2048 or 4096 bytes, followed by extents, which are runs of
// adjacent frames for block I/O. A [Frame] names bytes by their offset in the region, in the
// layout of the kernel's struct xdp_desc. The same sixteen bytes go from a receive ring to a disk
// queue unchanged.
//
// Ownership. Every frame has exactly one holder at any time: the pool, a device's queue or a
// worker. Passing a frame passes ownership, and a [Book] records it. The counts of the holders
// always add up to the number of frames. [Region.Audit] checks that frame by frame, and
// [Region.Snapshot] reads it under traffic. A build with -tags invariants (or -race) checks every
// pass, and fills frames that return to the pool with 0xCC.
//
// Threads. Any goroutine may use a Region and its pool. A Book, its Holders and the Ports that use
// them belong to one thread at a time.
//
// Lifetime. Memory for devices is mapped outside the Go heap and stays mapped until Close, which
// refuses while a device has it registered.
//
// The oldest kernel is 6.1 (MADV_POPULATE_WRITE, memfd on huge pages).
package umem
