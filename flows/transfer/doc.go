// Package transfer copies a file or a block device from one machine's disk to another's, by RDMA WRITE.
//
//	disk ─▶ extents ── Sender ── WRITE of a piece, SEND of its header ──▶ extents ─▶ disk
//	  (io_uring)                  ◀── SEND: grants, what is durable ── Receiver (io_uring)
//
// A piece is as many bytes as fit in an extent of the receiver, 1 MiB to 1 GiB. The sender's disk reads it into an
// extent, the device WRITEs it from there into an extent that the receiver grants, and the receiver's disk writes it
// from there. Neither side copies it. Holes of a file are sent as ranges.
//
// Checksums. The header of a piece has its CRC-32C. The receiver ends the sender's right to the extent, compares the
// checksum, and only then writes the piece. Both sides hash each MiB (BLAKE3), and the list of the hashes (SHA-256). The
// sender ends with the hash of the list. The receiver compares it before the copy is complete.
//
// Resuming. The receiver flushes the disk about once a second, and then records in a second file up to where the copy
// is durable, with the state of the hash of the list there. Each connection begins at the place that is recorded, on
// the same or on another connection, of the same process or of another. The record has the identity of the source: if the
// source is another one, or has changed, the copy begins again.
//
// Files get their name when they are complete and durable. Until then they have a hidden name beside it. Names that
// lead out of the receiving directory are refused. A device has its record in another directory ([ReceiverConfig].State).
//
// The source may change while it is sent. The sender compares times and size of a file, or the kernel's count of writes
// to a device, before it says that all is sent. If they have changed, it ends, and the receiver removes what it has.
//
// Threads. Run of a Sender occupies a thread, and so does each connection of a Receiver. Each has a book, a disk queue,
// and a completion queue of its own. Other goroutines hash, and record. Any goroutine may call Stats.
//
// Lifetime. An Endpoint outlives the Sender or Receiver. End the context of Run or Serve and wait for it before Close.
//
// The oldest kernel is 6.1. docs/how-to/transfer.md has the formats.
package transfer
