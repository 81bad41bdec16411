// Package verbs is the provider over libibverbs: RDMA cards, and the kernel's Soft-RoCE.
//
// It needs the build tag verbs, cgo and the headers of libibverbs; make sets the tag where they
// are installed. The libraries are opened on the first use of a provider (dlopen(3), by the
// versions of their symbols). So a program starts without them and reports what is missing.
// Without the tag every call returns rdma.ErrUnsupported.
//
// The data path (PostSend, PostReceive, Poll, Spin, Arm) calls C once per batch, and the device's
// driver in user space through the operations of its context, like the inline functions of
// infiniband/verbs.h. It allocates nothing.
//
// Addresses. With ibv_reg_mr_iova2 (rdma-core 28) a region is registered at address 0. With older
// libraries addresses are those of the memory in this process, as MemoryRegion.Addr says.
// libibverbs reads inline data itself, so the lkey of its elements must be that of a whole region
// (Register).
//
// Devices. The package reads state, addresses and counters of RDMA devices from
// /sys/class/infiniband, without libibverbs; see [PortsOf] and [ReadCounters].
//
// Memory windows. Soft-RoCE has them, but lets a peer access memory beyond their bounds. So none
// are made there (ErrUnsupported). A window stays with the queue pair that bound it last. Close it
// before that queue pair, or invalidate it and bind it with another one.
//
// Limits. The tests ran on Soft-RoCE and no other device. The code for queue pairs over an
// InfiniBand link layer (addressed by LID, P_Key) and for iWARP is untested.
package verbs
