// Package transport is the protocol of RoCE's transports RC, UC and UD: queue pairs
// without sockets, threads or a clock.
//
// An [Engine] takes packets ([Engine.Receive]) and the time ([Engine.Tick]), and gives
// packets to send ([Engine.Progress]). A device puts envelopes, ICRCs and a network
// around it. A test joins two of them by a link that loses packets, under a seed.
//
// A [QueuePair] has three parts. The requester makes packets of requests, and sends
// them again from the first that is not acknowledged. The completer takes
// acknowledgements and answers. The responder executes the peer's requests, once each
// and in order, and keeps READs and atomics to answer them again. Send queue, receive
// queue and [CompletionQueue] are rings with one writer and one reader, so that posting
// and polling need no lock.
//
// Memory. The engine checks [Keys] for each packet: a right that ends also ends for the
// rest of a message in flight. Packets to send point at the payload. Received payloads are
// copied once (CopiedBytes), or loaned in the frames they arrived in
// (rdma.QueuePairConfig.Loans).
//
// Order. A received message is visible to the program when Receive returns. Progress
// acknowledges it later, after the requests posted in the meantime: an answer is sent
// before the ACK. Several messages may get one ACK (Config.Hold).
//
// Fast path. An RC message in one packet takes a shorter path: a [FastSend] posts it, a
// [FastReceive] receives it. If the fast path refuses a message, it has changed nothing, and
// the message takes the normal path.
//
// Hostile peers. Packets from a wrong address, for an unknown queue pair or with an
// unexpected sequence number change nothing. Each is counted by a [Drop].
//
// Threads. An Engine and its Keys belong to one thread at a time. One thread each may
// call PostSend, PostReceive, Poll, Loaned and Return at any time.
//
// Sources: InfiniBand Architecture Specification, volume 1, chapters 9 to 11 and annex
// A17; drivers/infiniband/sw/rxe of Linux.
package transport
