// Package blocks serves a file or disk to RDMA clients: storage → RDMA, the role "blocks" of package protocol.
//
//	client                                     server
//	Dial    ── hello: flow ──────────────────▶ Serve: checks, Permit
//	        ◀─ hello: size, alignment, window ─
//	Submit  ── SEND: id, offset, length, ────▶ checked; what is not in the region is read
//	           and where the bytes shall go    from the disk into a frame or extent
//	Poll    ◀─ WRITE of the bytes with the ─── from where the disk has put them
//	           id as immediate, or SEND of
//	           a response that says why not
//
// The server's processor touches no byte of what it serves: the disk writes it into the region, the RDMA device reads it
// there. Requests are answered in whatever order they are ready in. A client has as many at once as the server's window says; those that cannot
// be begun at once wait, and none is lost.
//
// Buffers. A request of up to a frame is read into a frame, a longer one into an extent or several; without
// extents in the region, into several frames. The server takes them all from the pool when it is opened ([Needs]). Each client has some for itself, and the rest is for
// whoever comes first, so that a client whose writes do not get through holds up nobody else. Clients get their turn one
// request each.
//
// Cache. With Config.Cache, buffers keep what was read until another needs their place (second chance). Requests of up to 16 frames are then
// read and kept in whole frames of the disk, so that any later request that overlaps finds them. Longer ones are kept in
// extents as they were asked for, and found by a request from the same offset on: who reads a disk from end to end does not throw out what others read often.
// Where a buffer cannot be read, each request is read again by itself, so that a bad block is refused only to who asks for it.
// A buffer that is being written to a client is never given away. Whoever writes to the disk calls [Server.Invalidate] once the write is done.
//
// Strangers. Requests are checked before anything is done for them. A range that is not served is refused; who breaks the protocol, sends
// more than his window, or names memory that the server may not write is ended: his queue pair fails, and the others
// notice nothing.
//
// Threads. A Server belongs to the thread that polls it, its methods Stats, Serve and Flow excepted; Serve comes to that thread by a stream.Doer.
// A [Client] belongs to one thread at a time. Neither blocks, locks or allocates for a request.
//
// Lifetime. End Serve's context and wait for it, then Close the server, then close the target and the endpoint.
package blocks
