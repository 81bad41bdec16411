// Package nvmet is an NVMe over Fabrics target over RDMA. Any Linux host can connect
// (nvme connect -t rdma).
//
//	host                                       server
//	connects a queue pair (rdma_cm) ─────────▶ Serve: checks private data, takes a session
//	SEND of a capsule ───────────────────────▶ a command; Connect makes a controller
//	write  ◀─ READ of the host's memory ────── into a buffer, and from there to the disk
//	read   ◀─ WRITE to the host's memory ───── from where the disk has put it
//	       ◀─ SEND of the completion ───────── invalidates the host's key if asked to
//
// The server's CPU touches no byte of the data. Package nvme/fabrics has the wire
// formats and what a controller says of itself.
//
// Sessions. A queue pair takes a session, which has room for Config.Depth capsules. A
// host that sends more is disconnected. There are Config.Sessions; a host that finds
// none free is refused, and tries again.
//
// Buffers. Data of up to a frame moves through a frame, longer data through an extent.
// Each session gets a buffer for one command before another session gets the last one
// for a second command.
//
// Disks. A disk may use three times as much as is left free of buffers, queue entries
// and flushes. Commands beyond that wait for the disk alone, so that a disk that hangs
// blocks no other. What it has of a queue that ended keeps its session until then.
//
// Order. Commands of a queue may complete in any order. A flush makes durable every
// write that was completed before the flush came.
//
// Hostile hosts. Every byte is validated. A wrong command gets the specification's
// status. A violation of the transport's rules ends the queue pair. A host is
// disconnected when its keep-alive time passes in silence, or when it connects and
// sends nothing.
//
// Threads. A Server belongs to the thread that polls it, and does not block, lock or
// allocate per command. Any goroutine may call Stats and Serve. End Serve's context
// and wait for it before Close; close the disks and the endpoint last.
package nvmet
