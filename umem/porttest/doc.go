// Package porttest tests the contract of [umem.Port], which every port must keep. Its own
// [Pair], a port in memory, is the reference. A port's tests describe the device with a
// [Link] and call [Run]. A network delivers a message into frames that the receiver supplied
// before; storage fills a supplied frame with what was sent and reaped earlier.
//
// Counts. A verb returns how many frames it took or returned, from none to the whole slice,
// and 0 for an empty slice. It does not change frames that it did not take, or the rest of dst.
//
// Ownership. When the verb returns, the frames have changed owner, in the holders' counts and
// in the region's records. A frame is never returned twice and never lost. [umem.Side.Token]
// comes back unchanged.
//
// Room. Supply and Send take the front of the slice as far as the port has room. The frames in
// a port never exceed [umem.Limits]. An empty port takes that many, perhaps over several calls
// with Kick between them.
//
// Messages. Send takes whole messages: [umem.More] is never set on the last frame it takes. A
// chain for which there is no room, or whose end is not in the slice, stays with the caller.
//
// Addresses. Reap returns frames with the address they were sent with, each once. Recv returns
// only supplied frames, with a view inside them.
//
// Data. A message arrives byte for byte, and on a network in order. Nothing else in the region
// changes: neither sent frames, nor bytes around the view of a received frame, nor frames that
// the device does not hold.
//
// Failure. A frame whose transfer failed is returned with [umem.Failed] set and an Err with the
// cause. Other frames are not affected.
//
// Waiting. No verb blocks. FD polls readable while Recv or Reap has frames to return, also when
// only some were taken. It is quiet once all were taken. Kick with nothing queued does nothing
// and succeeds; a worker calls it once a round. In the steady state no verb allocates.
//
// End. Close returns every frame to the pool at once and succeeds. Afterwards the verbs return 0
// and take nothing, and a second Close does nothing. The device can be opened again at once.
package porttest
