// Package target is an NVMe over Fabrics target over RDMA: any Linux host is a client (nvme connect -t rdma).
//
//	host                                       server
//	connects a queue pair (rdma_cm) ─────────▶ Serve: private data is checked, a session is taken
//	SEND of a capsule ───────────────────────▶ a command; Connect makes a controller, or adds a queue to it
//	write  ◀─ READ of the host's memory ────── into a buffer of the region (or: its data is in the capsule)
//	                                           from there to the disk
//	read   ◀─ WRITE to the host's memory ───── from where the disk has put it in the region
//	       ◀─ SEND of the completion ───────── with the host's key ended, where it asks for that
//
// The server's processor touches no byte of what is read and written. What is on the wire, and all that a controller says of itself, is
// package nvme/fabrics.
//
// Seats. A queue pair of a host takes a session, which has room for Config.Depth capsules. A host has as many commands under way as its queue is deep,
// and no more: who oversteps it is ended. There are Config.Seats sessions, so what hosts can take of the machine is known beforehand; who comes when
// all are taken is refused, and tries again.
//
// Buffers. Data of up to a frame moves through a frame, longer data through an extent. A command for which there is none waits. Each session gets one command's before another gets a
// second that would be the last: so a host that does not take what it has asked for holds up nobody else.
//
// Disks. What disks have in common, buffers, places in their queue and flushes, each may have three times as much of as is left free. So one that does not answer holds up
// no other one: its commands wait in a line of their own, and are answered when it is back. What the disk has of a queue that ended keeps its session and its memory until then; what
// it has not got yet is dropped.
//
// Order. Commands of a queue may be done in any order, as NVMe has it. What a flush makes durable is every write that was answered before it came.
//
// Strangers. Every byte of a host's is checked. A command that is wrong is answered with the specification's status; one that breaks the
// transport's rules (a capsule too short, more commands than the queue has entries, memory that the server may not reach) ends the queue pair, and
// the others notice nothing. A host that falls silent for its keep-alive time is ended, as is one that connects and says nothing.
//
// Threads. A Server belongs to the thread that polls it; Stats and Serve may be called from any goroutine, and come to that thread by a stream.Doer.
// For a read, write or flush it neither blocks, locks nor allocates.
//
// Lifetime. End Serve's context and wait for it, then Close the server, then close the disks and the endpoint.
package target
