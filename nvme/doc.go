// Package nvme reads and writes files and block devices directly from the region, through
// io_uring.
//
// A [Target] is a file or a block device that is open for direct I/O, with the alignment that the
// kernel requires; or the NVMe character node of a disk (/dev/ngXnY), whose commands bypass the
// kernel's block layer. A [Queue] is one io_uring with the region's memory registered. The disk's
// controller reads a frame where the network card wrote it: no byte is copied, and no page is
// pinned per operation (older kernels: below).
//
// A Queue is a [umem.Port]. Supply submits reads, and Recv returns the filled frames. Send submits
// writes, and Reap returns their frames. A frame's [umem.Side] says where its bytes are on the
// disk: Target is the number from Add, Block the offset in bytes. A chain of frames is one
// operation on contiguous bytes of the disk; the Side of the first frame counts.
//
// SendDurable submits writes that need no flush. Flush, Discard and Zero have no frames; Flushed
// returns their results. One ring serves all kinds of target. How an operation becomes a
// submission is in submission.go and gather.go for reads and writes, span.go for ranges and
// command.go for nodes.
//
// Threads. Any thread may call Open. The first Kick or Wait binds the ring to the calling thread.
// All methods but Stats belong to that thread, Close too while the thread lives. Its goroutine
// must be locked to the thread (runtime.LockOSThread). The kernel enforces this. Queues of several
// threads may share a Target.
//
// Lifetime. The kernel may access a frame until its operation completes. So Close waits, and
// frames of operations that never complete are never returned. Targets outlive their queues.
//
// The oldest kernel is 6.1. Newer features are tried, and Granted reports them: rings in the
// region's control area (6.5), submission without the index array (6.6), gathering from registered
// memory (6.15). Since 6.12 a block device has a discard command; before, it is a form of
// fallocate. Linux 6.1 pins huge pages again for each command of a node, and before 6.5 the pages of a
// region on a device-DAX device are pinned for each operation. If the kernel gives up an operation
// before it began, which 6.1 does after a signal, the Queue submits it again.
//
// The interface is include/uapi/linux/io_uring.h and the manual pages io_uring(7),
// io_uring_setup(2), io_uring_enter(2) and io_uring_register(2); for nodes it is
// include/uapi/linux/nvme_ioctl.h and the NVM Express specifications.
package nvme
