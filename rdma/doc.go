// Package rdma is the interfaces of verbs in Go, the same for every provider, and
// the ports through which flows move frames over RDMA.
//
// A [Device] has ports with addresses ([GID]). In a [ProtectionDomain] memory is
// registered ([MemoryRegion]) and queue pairs are made ([QueuePair]). Work is posted to a
// queue pair as work requests ([SendRequest], [ReceiveRequest]) that name memory by
// scatter/gather elements ([SGE]), and comes back as work completions
// ([WorkCompletion]) in a [CompletionQueue]. The state of a queue pair is changed with
// [Attributes]. Transports are RC, UC and UD.
//
// Addresses. A umem.Region is registered whole, for local access, so that address zero of
// the registration is the first byte of the region's data: a frame's address is what a
// scatter/gather element says. Memory that a peer may reach is granted apart
// from that, in parts, with rights of its own that can be revoked (see [Access]).
//
// Requests and completions are plain words without pointers, posted and polled in
// batches: a call crosses to the provider once for all of them. Their numbers are those of
// libibverbs, so that what a user looks up elsewhere means the same here.
//
// Providers. Package rdma/verbs drives RDMA cards and Soft-RoCE through libibverbs, and rdma/roce is RoCE v2 in
// user space.
//
// Packages on these interfaces: rdma/msg moves frames by SEND and receive, rdma/mr grants a peer
// access to parts of a region, rdma/ep has what a server posts and polls. WRITE with immediate into
// frames that a peer was granted is flows/stream's.
//
// Errors. A failed operation is a [Status] of its completion, not a Go error. The first
// one of a queue pair is the cause; those after it are flushes ([WorkFlushed]) and say nothing.
//
// Threads. Devices, domains, registrations and queue pairs may be made and closed on any
// goroutine. A completion queue is polled, and a queue pair posted to, by one
// thread at a time each.
//
// Lifetime. What was made in or from a thing is closed before it: queue pairs before their
// completion queues, those and memory before their domain, all before the device. Close
// is refused with an error that names what is left, and may be called again.
package rdma
