// Package journal reads a log of messages as it lies on disk.
//
// A log is written by a flow from RDMA to storage, in the files or the ring that captures have (package
// internal/pcapng, docs/capture-format.md): each packet of link type 147 is one record, a data message as it came
// (package flows/protocol), whose header the flow has given a position: 1 for the log's first record, one more for each.
// Headers and payloads have checksums.
//
// # Where a log ends, and how it goes on
//
// Batches of records are written several at once, so a crash can leave later ones on the disk without earlier ones, or
// pieces of one. The log ends in front of the first record that is missing or whose checksum is wrong; what lies behind it
// was never acknowledged as written. [Tail] finds that end when the flow starts again, before anything is mended. The flow
// goes on with the next position in a segment of its own, whose head says where this run of the flow began ([Source]).
// Nothing is cut: readers leave out whatever earlier runs have from that position on.
//
// A record that is missing or damaged although the writer knew it to be on stable storage, as later marks say or the one with which it
// completed the segment, does not end the log: that is no crash but a disk that lost something. Readers are told with a [Gap], and go
// on behind it. Where a disk damages that last mark together with what is right in front of it, nothing tells it from a crash.
//
// # Rules
//
// A [Log] may be read while it is written. It and its Readers belong to one goroutine. Everything on disk is hostile until
// it is checked. Records die with the next call.
package journal
