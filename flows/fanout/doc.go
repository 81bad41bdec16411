// Package fanout sends messages to several receivers from the frames in which they
// landed. Each receiver has its own [stream.Sender]. A message is in memory once, for
// any number of receivers.
//
//	Offer ──▶ choose ──▶ queue of each peer ──▶ acknowledged, or given up ──▶ Free
//	                                                                    └───▶ Acknowledged
//
// Offer passes a message's frames to a holder of kind umem.OwnerShared. Free returns
// them when the last receiver is done with them. Acknowledged returns tokens in the
// order of Offer.
//
// Queues. Each peer has a queue. When it is full its [Policy] applies: the source
// waits, the new message is dropped, the oldest one is dropped, or the peer is
// disconnected. Other peers continue at their own rate, unless the source waits.
//
// Acknowledgement. A message is acknowledged when it and all messages before it have as
// many acknowledgements as [Acknowledge] requires. This takes precedence over policies.
// The fanout does not drop a message for a peer whose acknowledgement the message may
// need. It leaves a peer out of a new message only while enough other peers are
// connected and have room. Otherwise the source waits.
//
// Counts. For each peer: offered = acknowledged + dropped by each reason + waiting +
// in flight.
//
// Threads. Everything belongs to the worker's thread and does not block, lock or
// allocate. Any goroutine may call Run and Stats. End the context of Run and wait for
// it before Close.
package fanout
