// Package verbs is the provider over libibverbs: RDMA cards, and the kernel's Soft-RoCE.
//
// It is built in with the build tag verbs, cgo and the headers of libibverbs, which make
// uses where they are. The libraries themselves are opened when a provider is first asked
// for something (dlopen(3), by the versions of their symbols), so that a program starts
// without them and says what is missing. Without the tag every call gives rdma.ErrUnsupported.
//
// The data path (PostSend, PostReceive, Poll, Spin, Arm) crosses to C once for a batch and
// goes to the device's driver in user space through the operations of its context, like the
// inline functions of infiniband/verbs.h. It allocates nothing.
//
// Addresses. Where libibverbs has ibv_reg_mr_iova2 (rdma-core 28) a region is registered at
// address 0; with older ones addresses are those of the memory in this process, as
// MemoryRegion.Addr says. Inline data is read by libibverbs itself, so the lkey of its elements
// must be that of a whole region (Register).
//
// Devices. What the kernel says of RDMA devices without libibverbs (state, addresses,
// counters) is read from /sys/class/infiniband, see [Ports] and [ReadCounters].
//
// Memory windows. Soft-RoCE has them, but lets a peer reach beyond their bounds, so that none are
// made there (ErrUnsupported). A window stays with the queue pair that bound it last: it is closed
// before that, or bound with another, after it was invalidated.
//
// Limits. Soft-RoCE was at hand in tests, and no other device. Queue pairs over an InfiniBand
// link layer (addressed by LID, P_Key) are in the code untested, and so is iWARP.
package verbs
