// Package pcapng writes, reads and recovers unifiedd's capture files.
//
// A capture file ("segment") is plain pcapng, which Wireshark, tshark, tcpdump and capinfos read.
// It consists of batches that begin at aligned file offsets. So direct I/O can write them out of
// order, and a file can be recovered after a crash.
//
//	offset 0     head unit: Section Header, one Interface Description per captured queue, Mark (kind head)
//	             padded with zeros inside the mark up to the alignment
//	aligned      batch: Mark (kind batch), then packets, statistics and padding which fill its length exactly
//	aligned      batch ...
//
// A mark is a block of our own that readers skip. It has a magic number, version, kind, alignment,
// segment ID, sequence, its own file offset, length, packets, first packet number, the offset up
// to which data was known to be durable, and a CRC32C of all that. [Recover] accepts a batch only
// if its mark belongs to this segment, is intact, at its own offset and in order, and the blocks
// after it fill the length exactly. Missing batches in the middle become bridge marks, and missing
// ones at the end are truncated. Every standard reader then reads the file without complaint.
//
// # Two layouts
//
// slot: the 28 bytes of an Enhanced Packet Block are written directly before the packet where it
// landed in memory, and an option of the same block fills up to the next multiple of 512. So a
// frame is its own record, and no packet byte is copied. packed: packets are copied back to back
// into a staging buffer, and only the batch is aligned. Both use [PutPacketHeader],
// [PacketBlockLen] and [PutPacketTail]. A stream (standard output) is the packed layout after
// [AppendStreamHead], without marks.
//
// # What recovery checks
//
// Recovery checks the checksum of each mark and the structure of each block, but not the bytes of
// packets, which this package never reads. After a power cut, a batch beyond the durable offset
// may have a valid structure and still have, inside a packet longer than a sector, bytes that
// never reached the disk. [Report.Doubtful] counts the packets that were not known to be durable.
// Segments must be preallocated as new files: an old capture below could complete a torn batch.
// The head unit must be durable before the first batch is written; without it nothing can be
// recovered.
//
// # Rules
//
// All integers are little-endian. Functions named Put write into the caller's slice and allocate
// nothing. They write every byte of their part, since frames have old bytes of other flows. A
// slice that is too short is a programming error and panics. Functions named Append grow a slice
// and are not for the hot path. Nothing is shared: any goroutine may call any function.
//
// # Sources
//
// draft-ietf-opsawg-pcapng for the blocks; libpcap sf-pcapng.c for the limits (one link type and
// snapshot length per file, blocks of at most 384 KiB). Marks use a block type from the range for
// local use (high bit set) and not a Custom Block, since tshark and Wireshark list Custom Blocks
// as if they were packets. This project has no Private Enterprise Number. Where one is needed it
// is 32473, which RFC 5612 reserves for documentation.
package pcapng
