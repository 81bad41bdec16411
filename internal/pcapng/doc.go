// Package pcapng writes, reads and mends unifiedd's capture files.
//
// A capture file ("segment") is plain pcapng, which Wireshark, tshark, tcpdump and capinfos open. What is special is
// how it is cut: into batches that begin at aligned file offsets, so that direct I/O can write them out of order and
// so that a crash can be recovered from.
//
//	offset 0     head unit: Section Header, one Interface Description per captured queue, Mark (kind head)
//	             padded with zeros inside the mark up to the alignment
//	aligned      batch: Mark (kind batch), then packets, statistics and padding which fill its length exactly
//	aligned      batch ...
//
// A mark is a block of ours which readers skip. It says: magic, version, kind, alignment, segment id, sequence, its
// own file offset, length, packets, first packet number, the offset up to which data was known to be durable, and a
// CRC32C of all that. [Recover] trusts a batch only when its mark is of this segment, at its own offset, in order,
// intact, and the blocks behind it tile the length exactly. What is missing in the middle becomes bridge marks, what
// is missing at the end is cut, and every standard reader then reads the file without complaint.
//
// # Two layouts
//
// slot: the 28 bytes of an Enhanced Packet Block are written directly in front of the packet where it landed in
// memory, and an option of the same block fills up to the next multiple of 512, so a frame is its own record and no
// packet byte is copied. packed: packets are copied back to back into a staging buffer and only the batch is aligned.
// Both come from [PutPacketHeader], [PacketBlockLen] and [PutPacketTail]. A stream (standard output) is the packed
// layout after [AppendStreamHead], without marks.
//
// # What recovery can and cannot see
//
// It checks the mark's checksum and the structure of every block, not the packet bytes, which nobody here touches.
// After a power cut, a batch beyond the durable offset may be well formed and still hold, in the middle of a packet
// longer than a sector, bytes that never reached the disk. [Report.Doubtful] counts the packets that were not yet
// called durable. Segments must be preallocated as fresh files: old captures underneath could complete a torn batch.
// The head unit must be durable before the first batch is written, or there is nothing to recover from.
//
// # Rules
//
// All integers are little-endian. Functions named Put write into the caller's slice, allocate nothing, and write every
// byte they are responsible for, because frames hold other flows' old bytes; a slice that is too short is a
// programming error and panics. Functions named Append grow a slice and are not for the hot path. Nothing here is
// shared: any function may run in any goroutine.
//
// # Sources
//
// draft-ietf-opsawg-pcapng for the blocks; libpcap sf-pcapng.c for the limits (one link type and snapshot length per
// file, blocks of at most 384 KiB). Marks use a block type from the range reserved for local use (high bit set) and
// not a Custom Block, because tshark and Wireshark list Custom Blocks as if they were packets. No Private Enterprise
// Number is assigned to this project: where one is needed, it is 32473, which RFC 5612 sets aside for documentation.
package pcapng
