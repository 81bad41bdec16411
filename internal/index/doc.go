// Package index finds packets of capture segments again by time, address, port and protocol, without reading what lies between.
//
// A segment is divided into blocks: some batches, one behind the other. An index says of each block when its packets came and which
// keys they have: addresses, pairs of addresses, ports, protocols, ethertypes, VLANs. So it says which blocks may hold what a filter
// accepts; each packet there is still judged by the filter, and an index that names too many blocks costs time and never a wrong
// packet. docs/capture-format.md has the file format.
//
// # Trust
//
// An index is used only with the segment it was made of, closed as it was then: the id, the size and the closing mark must be those,
// the checksums right, and the index not older than the segment. Everything else is an error that says what is wrong; the caller then
// reads the whole segment. An index can always be made again.
//
// # Rules
//
// Nothing here is shared; a value belongs to one goroutine. Memory is bounded: a [Builder] has at most a section of entries, whatever
// the size of the segment, and a reader one section at a time.
package index
