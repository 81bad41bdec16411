// Package fanout sends messages to several receivers from the frames they lie in,
// each through a [stream.Sender] of its own. A message is in memory once, however
// many receivers it has.
//
//	Offer ──▶ choose ──▶ queue of each peer ──▶ acknowledged, or given up ──▶ Free
//	                                                                    └───▶ Acknowledged
//
// From Offer on, a message's frames belong to a holder of kind umem.OwnerShared. They
// come back by Free when the last receiver is done with them. Acknowledged returns
// tokens in the order of Offer.
//
// Queues. Each peer has a queue. When it is full its [Policy] applies: the source
// waits, the new message is dropped, the oldest one is dropped, or the peer is
// disconnected. Other peers go on at their own rate, unless the source waits.
//
// Acknowledgement. A message is acknowledged when as many peers as [Acknowledge] says
// have acknowledged it and all before it. This comes before policies: a message that
// is not acknowledged is dropped for no peer, and a peer is left out of a new message
// only while enough others are connected and have room. Otherwise the source waits.
//
// Counts. For each peer: offered = acknowledged + dropped by each reason + waiting +
// in flight.
//
// Threads. Everything belongs to the worker's thread and does not block, lock or
// allocate. Any goroutine may call Run and Stats. End the context of Run and wait for
// it before Close.
package fanout
