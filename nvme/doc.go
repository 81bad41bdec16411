// Package nvme reads and writes files and block devices straight from the
// region, through io_uring.
//
// A [Target] is a file or a block device opened for direct I/O, with the
// alignment the kernel asks of it. A [Queue] is one io_uring with the region's
// memory registered, so that the disk's controller fetches a frame from where
// the network card put it: no copy, and no page pinned per operation. A Queue is
// a [umem.Port]: Supply submits reads, Recv gives them back filled, Send submits
// writes, Reap gives those back. Where a frame's bytes lie on the disk is in its
// [umem.Side]: Target is the number Add returned, Block the offset in bytes. A
// chain of frames is one operation on contiguous bytes of the disk, gathered from
// or scattered to the frames; the first frame's Side counts.
//
// Threads. Open may be called on any thread. The first Kick or Wait binds the
// ring to the calling thread, and from then on every method but Stats belongs to
// it, Close unless it has ended; its goroutine must be locked to the thread (runtime.LockOSThread). The
// kernel enforces this. A Target may be shared by queues of several threads.
//
// Lifetime. The kernel may touch a frame until its operation completes, so Close
// waits, and frames of operations that never complete are never given back.
// Targets outlive the queues they are in.
//
// The oldest kernel is 6.1. What newer ones offer is tried and reported by
// Granted: rings inside the region's control area (6.5), submission without the
// index array (6.6), gathering from registered memory (6.15).
//
// The interface is that of include/uapi/linux/io_uring.h and the manual pages
// io_uring(7), io_uring_setup(2), io_uring_enter(2) and io_uring_register(2).
package nvme
