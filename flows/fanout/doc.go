// Package fanout sends messages to several receivers, each by a [stream.Sender] of its own, from the frames they lie in: however many
// receivers a message goes to, it is in memory once.
//
//	Offer ──▶ choose ──▶ queue of each peer ──▶ acknowledged, or given up ──▶ Free: frames nobody needs
//	                                                                    └───▶ Acknowledged: tokens, in the order of Offer
//
// A message's frames belong to a holder of kind umem.OwnerShared from Offer on, and come back by Free once the last receiver is done with them.
// How many still need them is a word beside the message ([Choose] says whom a message is for).
//
// Queues. Each peer has a queue: what its sender can hold, posted or not. When it is full its [Policy] says who gives way: the source, the new message,
// the one that waits longest, or the peer's connection. Other peers go on at their own rate, except that a source which waits waits for all.
//
// Acknowledgement. A message is acknowledged once as many peers as [Acknowledge] says have acknowledged it, and all messages before it are. That promise comes before
// policies: a message that is not acknowledged yet is given up for no peer, and a peer is left out of a new one only while enough others are connected that have room.
// Otherwise the source waits. So with a peer away for good, choose DropOldest for it: what the others have acknowledged makes room.
//
// Nothing is lost silently: of each peer, offered = acknowledged + dropped by each reason + waiting + in flight.
//
// Threads. Everything belongs to the worker's thread, and neither blocks, locks nor allocates, except Run and Stats, which any goroutine may call.
//
// Lifetime. End the context of Run and wait for it, then Close.
package fanout
