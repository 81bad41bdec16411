// Package protocol has the bytes that flows and their peers exchange: the hello over TCP, and
// the messages over a queue pair. docs/protocol.md describes them for programs in other
// languages.
//
// There are two roles. RoleAppend: a sender numbers messages ([Data]) 1, 2, 3 within its
// session, and a receiver takes each once and in order. It tells the sender up to which
// message it has acknowledged, and up to which the sender may go on ([Progress]). RoleBlocks:
// a client asks for ranges of a file or disk ([Request]) and gets them by RDMA WRITE with
// immediate, or a [Response] with the reason why not.
//
// Every header has HeaderLen bytes, big-endian, with a CRC-32C of its own. A data message is
// stored as it came; its header then also has its position in the log.
//
// Parse functions take hostile bytes. They read nothing outside their argument, never panic,
// and return a [Reason] for what they refuse. Sequences, credits and payloads are the
// caller's to check.
//
// All functions are pure; only [Hello] allocates.
package protocol
