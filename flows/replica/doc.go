// Package replica carries the records of a group's log between members over RDMA.
//
//	leader                                             follower
//	       ◀── dials, hello: epoch, next position ────
//	       ─── hello ────────────────────────────────▶
//	Offer  ─── SEND: the record, from its frame ─────▶ Recv: checked, in the frame it landed in
//	       ─── SEND: uCMT, committed position ───────▶ Committed
//	       ◀── SEND: uHAV, positions and credits ──── Progress
//
// A [Link] is a queue pair of one epoch. Records go over it in the order of their positions, without
// a gap. A leader sends a record to all followers from the frame in which it arrived, and keeps the
// frame until the disk and all of them are done with it. What a follower lacks from before is read
// from the segments and copied, which is counted. A leader that lacks records gets them from another
// member in the same way.
//
// A link that ends is never used again. Whatever had arrived and was not returned by Recv is dropped.
//
// Links go over several devices if members have several paths. Records come over one link at a time. The member that
// gets them chooses its path.
//
// Threads. Methods of Links belong to the worker's thread, and do not block or lock, if their comment
// does not say otherwise. They allocate when a link begins or ends, and while records are read from the
// segments for it.
package replica
