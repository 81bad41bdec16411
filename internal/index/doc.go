// Package index finds packets of capture segments by time, address, port and protocol, without
// reading the other packets.
//
// A segment is divided into blocks of adjacent batches. For each block, an index has the times of
// its packets and their keys: addresses, pairs of addresses, ports, protocols, ethertypes, VLANs.
// So it names the blocks that may have packets which a filter accepts. The filter still decides on
// each packet there: an index that names too many blocks costs time, and never yields a wrong
// packet. docs/reference/capture-format.md has the file format.
//
// # Trust
//
// An index is used only with the segment that it was made from, in the same state: the ID, the
// size and the end marker must match, the checksums must be right, and the index must not be older
// than the segment. Otherwise the error says what is wrong, and the caller reads the whole
// segment. An index can always be made again.
//
// # Rules
//
// Values are not shared: each belongs to one goroutine. Memory is bounded: a [Builder] and a
// reader have at most one section of entries, whatever the size of the segment.
package index
