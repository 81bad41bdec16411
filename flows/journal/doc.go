// Package journal reads a log of messages on disk.
//
// A flow from RDMA to storage writes a log. It uses the same files or ring as a capture (package
// internal/pcapng, docs/reference/capture-format.md). Each packet of link type 147 is one record: a data
// message (package flows/protocol) whose header has its position. Positions begin with 1 and have
// no gap. Headers and payloads have checksums.
//
// # The end of a log
//
// A flow writes several batches at once, so a crash may leave later batches without earlier ones.
// The log ends before the first record that is missing or has a wrong checksum; the flow never
// acknowledged a record after that one as written. [Tail] finds the end before anything is
// recovered. The flow continues with the next position in a new segment, whose head names the run
// ([Source]). The flow cuts nothing off: readers skip the records of earlier runs from that
// position on.
//
// A record may be missing although a later header or an end marker says that it was durable. Then
// the disk has lost it, and the log does not end there. Readers get a [Gap] and continue after it.
// If a disk damages the end marker together with the records before it, the segment looks as after
// a crash; only the manifest shows the loss.
//
// # Rules
//
// A [Log] may be read while a flow writes it. A Log and its Readers belong to one goroutine.
// Everything on disk is hostile until it is checked. A record is valid until the next call.
package journal
