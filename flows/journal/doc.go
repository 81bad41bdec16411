// Package journal reads a log of messages on disk.
//
// A flow from RDMA to storage writes a log, in the files or the ring that captures
// have (package internal/pcapng, docs/capture-format.md). Each packet of link type 147
// is one record: a data message (package flows/protocol) whose header has its
// position. Positions begin with 1 and have no gap. Headers and payloads have
// checksums.
//
// # The end of a log
//
// Several batches are written at once, so that a crash may leave later batches without
// earlier ones. The log ends before the first record that is missing or has a wrong
// checksum; what lies behind was never acknowledged as written. [Tail] finds the end
// before anything is recovered. The flow goes on with the next position in a new
// segment, whose head names the run ([Source]). Nothing is cut: readers skip what
// earlier runs have from that position on.
//
// A record may be missing although a later header or an end marker says that it was
// durable. Then the disk has lost it, and the log does not end there. Readers get a
// [Gap] and go on behind it. If a disk damages the end marker together with the
// records before it, nothing tells that from a crash; the manifest then does.
//
// # Rules
//
// A [Log] may be read while it is written. It and its Readers belong to one goroutine.
// Everything on disk is hostile until it is checked. A record is valid until the next
// call.
package journal
