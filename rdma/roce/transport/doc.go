// Package transport is the protocol of RoCE's transports RC, UC and UD: queue pairs, without sockets, threads
// or a clock of its own.
//
// An [Engine] takes packets that came ([Engine.Receive]) and the time ([Engine.Tick]), and gives packets to be
// sent ([Engine.Progress]). Whoever drives it puts envelopes, ICRCs and a network around it; a test puts two of them
// side by side with a link that loses, and runs both under a seed. Headers are those of package wire.
//
// A [QueuePair] has a send queue and a receive queue, which the program's thread writes and the engine reads; completions
// go the other way through a [CompletionQueue]. All are rings of entries of fixed size between one thread that writes and one that reads, so
// posting and polling need no lock and no engine. Each index is an atomic with one writer, stored once per batch.
//
// Inside, a queue pair has three parts: the requester makes packets of its own requests and sends them again
// from the first that is not acknowledged; the completer takes acknowledgements and answers; the responder executes the
// peer's requests, once each and in order, and remembers READs and atomics to answer them again.
//
// Memory. [Keys] say what of the region may be used by whom, and are asked for each packet: a right that ends
// ends for the rest of a message that is on its way. Packets to be sent point at the memory where the payload lies; nothing
// is copied. What comes is copied once, to where a receive, a WRITE or a READ says (counted as CopiedBytes); or a SEND is
// handed on in the frames that it arrived in, which are lent up to a limit (rdma.QueuePairConfig.Loans). Every frame
// that is not lent is the caller's again when Receive returns.
//
// Order. What a message brings is shown to the program when Receive returns, and acknowledged by Progress after that, behind
// whatever was posted meanwhile: an answer goes out in front of the acknowledgement. To a peer that goes on without
// acknowledgements one may say several (Config.Hold), until nothing comes for a while (Release).
//
// A message of RC in one packet with nothing in front of it has a shorter way: SendOnly and SentOnly post it, Expects and
// ReceiveOnly take it. They do what the others would, and leave to those whatever is not so simple.
//
// Hostile peers. The payload and every field of a header are the peer's. Packets from another address, for a queue pair
// that is not there, or with a packet number that is not the one to come, change nothing; each that is dropped is counted by a [Drop].
//
// Threads. An Engine, and the Keys it uses, belong to one thread at a time; whoever drives it sees to that. PostSend,
// PostReceive, Poll, Loaned and Return are called by one thread each, at any time.
//
// Lifetime. A queue pair is closed before its completion queues are forgotten. Close does not give back frames that
// the program has taken and not returned.
//
// Sources: InfiniBand Architecture Specification, volume 1, chapters 9 to 11 and annex A17; drivers/infiniband/sw/rxe of
// Linux, whose deviations are named where they matter.
package transport
