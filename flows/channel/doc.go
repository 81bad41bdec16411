// Package channel carries the messages of a channel to the same channel on another machine, by RDMA WRITE from ring to
// ring.
//
//	writing program ─▶ ring ── Sender ── WRITE, slot by slot ──▶ ring ─▶ reading programs
//	                               ◀── SEND: acknowledged ── Receiver
//
// Both rings lie in the region, and have the same slots. A [Sender] is a reader of the first one: it posts a WRITE for
// each message, from the slot where the program wrote it into the slot of the same number. Nothing is copied, and the
// other daemon is not in the path of a message. The last WRITE of a batch has an immediate, which is the lower half of
// its sequence. With it the [Receiver] learns up to where everything has arrived, publishes that, and wakes readers that
// sleep. Readers that do not sleep find a message before: bytes of a WRITE arrive in no promised order, so a slot
// beyond what is published counts once its checksum is right.
//
// Sequences. A connection begins with the sequence that the receiver expects, or with the oldest one that the sender's
// ring still has; a receiver that has nothing of this numbering begins with the next message. What lies between is a
// gap, which readers count. A ring has the number of its numbering: if it changes, the receiver empties its ring.
//
// Flow control. The receiver acknowledges what those of its readers have read that the writer waits for, or else what
// has arrived. The sender is never more than a ring ahead of that. So a remote reader with policy wait bounds the
// writer, and one with drop_oldest bounds only the sender, which then loses the oldest messages.
//
// Paths. A sender may have several paths: a device here, and an address there. It uses one at a time, and tries those that
// are preferred meanwhile. A receiver at several devices has one ring, and a new connection ends the present one before it
// is answered. While a path changes, the writer waits for a peer with the policy wait. So that it waits for the readers
// there, too, the receiver says at each connection which message they have not read.
//
// A slot that the writer writes again while its WRITE is under way arrives as a mixture. Its checksum is wrong, and
// readers count it as lost. This cannot happen with the policy wait.
//
// Threads. Poll, FDs and Deadline belong to the worker's thread; they do not block, lock or allocate. Run and Serve
// connect on goroutines of their own, and reach the worker's thread through a stream.Doer. Any goroutine may call Stats.
//
// Lifetime. End the contexts of Run and Serve and wait for them before Close.
package channel
