// Package blocks serves a file or disk to RDMA clients: the role "blocks" of package
// protocol.
//
//	client                                     server
//	Dial    ── hello: flow ──────────────────▶ Serve: checks, Permit
//	        ◀─ hello: size, alignment, window ─
//	Submit  ── SEND: id, offset, length, ────▶ checked; what is not in the region is read
//	           remote address                  from the disk into a frame or extent
//	Poll    ◀─ WRITE of the bytes with the ─── from where the disk has put them
//	           id as immediate, or SEND of a
//	           response with the reason
//
// The server's CPU touches no byte of the data. The server answers requests in the order
// in which they are ready. A client may have a window of requests; those that cannot
// begin at once wait.
//
// Buffers. A request of up to a frame is read into a frame, a longer one into extents,
// or into several frames if the region has no extents. The server takes all buffers
// when it opens. Each client has a reserve, and the rest is shared, so a client that
// does not accept its data blocks no other client. Clients take turns.
//
// Cache. With Config.Cache, buffers keep their data until another request needs them
// (second chance). Requests of up to 16 frames are kept in whole frames, so that
// overlapping requests hit. Longer ones are kept in extents and hit from the same
// offset only. If a read fails, the server reads again for each request separately. A
// program that writes to the disk calls [Server.Invalidate] after the write.
//
// Hostile clients. The server validates every request first. It refuses a range that it
// does not serve. It disconnects a client that breaks the protocol or that names memory
// that the server may not write.
//
// Threads. A Server belongs to the thread that polls it, and a [Client] to one thread
// at a time. Neither blocks, locks or allocates per request. Any goroutine may call
// Stats and Serve. End Serve's context and wait for it before Close; close the target
// and the endpoint last.
package blocks
