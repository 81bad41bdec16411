// Package nvme reads and writes files and block devices straight from the
// region, through io_uring.
//
// A [Target] is a file or a block device opened for direct I/O, with the
// alignment the kernel asks of it, or the NVMe node of a disk (/dev/ngXnY), whose commands
// go to the disk past the kernel's block layer. A [Queue] is one io_uring with the region's
// memory registered, so that the disk's controller fetches a frame from where
// the network card put it: no copy, and no page pinned per operation. A Queue is
// a [umem.Port]: Supply submits reads, Recv gives them back filled, Send submits
// writes, Reap gives those back. Where a frame's bytes lie on the disk is in its
// [umem.Side]: Target is the number Add returned, Block the offset in bytes. A
// chain of frames is one operation on contiguous bytes of the disk, gathered from
// or scattered to the frames; the first frame's Side counts.
//
// SendDurable submits writes that need no flush. Flush, Discard and Zero have no frames,
// and Flushed gives their results. One ring serves every kind of target; what differs is
// how an operation is put down as a submission: submit.go and gather.go for reads and
// writes, span.go for ranges, command.go for nodes.
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
// index array (6.6), gathering from registered memory (6.15). Discarding on a block
// device is a command of its own since 6.12, and a form of fallocate before.
// 6.1 pins huge pages again for each command of a node. Where a kernel gives an operation up
// before it began, which 6.1 does when a signal comes at the wrong time, it is submitted again.
//
// The interface is that of include/uapi/linux/io_uring.h and the manual pages
// io_uring(7), io_uring_setup(2), io_uring_enter(2) and io_uring_register(2); that of nodes is
// include/uapi/linux/nvme_ioctl.h and the NVM Express specifications.
package nvme
