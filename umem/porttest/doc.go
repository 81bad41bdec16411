// Package porttest is the contract of [umem.Port], as tests that every port
// passes. Its own [Pair] passes them too; it is the reference, and the one
// implementation of a port in memory.
//
// A port's tests describe the device to the suite with a [Link] and call [Run].
// The device may be a network, where a sender's messages fall into frames a
// receiver supplied beforehand, or it may store, where a supplied frame asks for
// what was sent and reaped earlier.
//
// # The contract
//
// Counts. A verb returns how many frames it took or gave, from none to all of
// the slice. An empty slice returns 0. A verb leaves the frames it did not take as
// they are, and the rest of dst as it was.
//
// Ownership. At the verb's return the frames have changed hands, in the holders'
// counts and in the region's records: what Supply and Send took has left the
// worker's holder, what Recv and Reap gave is in it. A frame is never given twice
// and never lost. [umem.Side.Token] comes back as it went.
//
// Room. Supply and Send take the front of the slice up to what the port has room
// for, and the rest stays the caller's. Frames taken and not yet given back never
// number more than [umem.Limits] says, and an empty port takes that many, if
// need be over several calls with Kick between them.
//
// Messages. Send takes whole messages: the last frame it takes never has
// [umem.More] set. A chain for which there is no room, or whose end is not in
// the slice, stays the caller's altogether.
//
// Addresses. Reap gives frames with the address they were sent with, each once.
// Recv gives only frames that were supplied, with a view inside their room.
//
// Data. A message arrives as it was sent, byte for byte, and on a network in
// order. Nothing else in the region changes: neither the frames sent, nor what
// surrounds the view in a frame received, nor any frame the device does not hold.
//
// Failure. A frame whose transfer did not succeed comes back all the same, with
// [umem.Failed] set and an Err that says why. Its neighbours are unharmed.
//
// Kick. Kick with nothing queued does nothing and succeeds, and so does Kick
// again. A worker calls it once a round.
//
// Waiting. No verb blocks, whatever the device does. FD polls readable for as
// long as Recv or Reap has frames to give, also when only some were taken, and
// falls quiet when all were.
//
// Cost. In the steady state no verb allocates.
//
// End. Close gives every frame inside to the pool at once and succeeds. After it
// the verbs return 0 and take nothing; Close again does nothing. The device can be
// opened again at once.
package porttest
