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
// formats and the data with which a controller describes itself.
//
// Sessions. A queue pair takes a session, which has room for Config.Depth capsules. The
// server disconnects a host that sends more. There are Config.Sessions sessions. If none
// is free the server refuses the host, and the host tries again.
//
// Buffers. Data of up to a frame moves through a frame, longer data through an extent.
// Each session gets a buffer for one command before another session gets the last one
// for a second command.
//
// Disks. A disk may use three times as many buffers, queue entries and flushes as are
// free. Further commands wait for this disk only, so a disk that hangs blocks no other.
// If a queue ends while the disk still has its commands, the session stays in use until
// the disk is done with them.
//
// Reservations. Servers of one disk share them in a file: see keeper.
//
// Order. Commands of a queue may complete in any order. A flush makes durable every
// write that was completed before the flush arrived.
//
// Hostile hosts. The server validates every byte. It answers a wrong command with the
// specification's status. A violation of the transport's rules ends the queue pair. The
// server disconnects a host that sends nothing for its keep-alive time, or that connects
// and sends nothing.
//
// Threads. A Server belongs to the thread that polls it, and does not block, lock or
// allocate per command. Any goroutine may call Stats and Serve. End Serve's context
// and wait for it before Close; close the disks and the endpoint last.
package nvmet
