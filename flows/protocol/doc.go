// Package protocol has the bytes that flows and their peers exchange: the hello with which both
// sides meet over TCP, and the messages that then go over a queue pair. docs/protocol.md describes
// the same for whoever writes a peer in another language, with the rules of who may say what when.
//
// There are two roles. RoleAppend: a sender has messages, numbered 1, 2, 3 within its session, and a
// receiver takes them in order, each message ([Data]) once, and says from time to time up to
// which it has them and up to which the sender may go on ([Progress]). RoleBlocks: a client asks for ranges of a
// file or disk ([Request]), gets them by RDMA WRITE with immediate, and where it does not a [Response] says why.
//
// Every header is HeaderLen bytes, big-endian, with a checksum (CRC-32C) of its own, so that what lands in
// the wrong place, or comes back from a disk, is noticed. A data message is stored as it came: the header
// then also says its position in the log.
//
// Parse functions take bytes from strangers: they look at nothing outside of what they are given, never
// panic, and say with a [Reason] what they do not accept. They check what one message can show by itself;
// sequences, credits and payloads are their caller's to check.
//
// Threads: these are functions of their arguments; only [Hello] allocates.
package protocol
