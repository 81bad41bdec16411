// Package protocol has the bytes that flows and their peers exchange: the hello over TCP, and
// the messages over a queue pair. docs/reference/protocol.md describes them for programs in other
// languages.
//
// There are two roles. RoleAppend: a sender numbers its messages ([Data]) 1, 2, 3 in its
// session, and a receiver accepts each once and in order. The receiver reports the last
// acknowledged message, and the last one that the sender may send ([Progress]). RoleBlocks: a
// client requests ranges of a file or disk ([Request]). It gets them by RDMA WRITE with
// immediate, or a [Response] with the reason for the refusal.
//
// Every header has HeaderLen bytes, big-endian, with its own CRC-32C. A data message is
// stored as it arrived; its header then also has its position in the log.
//
// Parse functions accept hostile bytes. They read nothing outside their argument, never panic,
// and return a [Reason] if they refuse the bytes. The caller must check sequences, credits and
// payloads.
//
// All functions are pure; only [Hello] allocates.
package protocol
