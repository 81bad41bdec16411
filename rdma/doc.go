// Package rdma has the interfaces of verbs in Go, the same for every provider. Flows move frames
// over RDMA through them.
//
// A [Device] has ports with addresses ([GID]). A [ProtectionDomain] registers memory
// ([MemoryRegion]) and makes queue pairs ([QueuePair]). A program posts work requests
// ([SendRequest], [ReceiveRequest]) to a queue pair. They name memory by scatter/gather elements
// ([SGE]). It then polls work completions ([WorkCompletion]) from a [CompletionQueue]. [Attributes]
// change the state of a queue pair. Transports are RC, UC and UD.
//
// Addresses. A umem.Region is registered whole, for local access. Address zero of the registration
// is the first byte of the region's data, so a scatter/gather element contains the address of a
// frame. Memory that a peer may reach is granted separately and in parts. Each part has its own
// rights, which can be revoked (see [Access]).
//
// Requests and completions are plain words without pointers, posted and polled in batches: one call
// to the provider handles a whole batch. Their numbers are those of libibverbs, so that
// documentation of libibverbs applies here.
//
// Providers. Package rdma/verbs drives RDMA cards and Soft-RoCE through libibverbs. Package
// rdma/roce is RoCE v2 in user space.
//
// Packages on these interfaces: rdma/msg moves frames by SEND and receive, rdma/mr grants a peer
// access to parts of a region, and rdma/ep has the queues and buffers of a server. flows/stream
// uses WRITE with immediate into frames that a peer granted.
//
// Errors. A failed operation is a [Status] of its completion, not a Go error. The first one of a
// queue pair is the cause. Those after it are flushes ([WorkFlushed]) and give no cause.
//
// Threads. Any goroutine may make and close devices, domains, registrations and queue pairs. One
// thread at a time polls a completion queue. One thread at a time posts to a queue pair.
//
// Lifetime. Close objects before the objects they were made from: queue pairs before their
// completion queues, completion queues and memory before their domain, all before the device. Close
// refuses while such objects are open, with an error that names them. It may be called again.
package rdma
