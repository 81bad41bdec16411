// Package pcapng writes, reads and recovers unifiedd's capture files.
//
// A capture file ("segment") is plain pcapng, which Wireshark, tshark, tcpdump and capinfos
// read. It consists of batches at aligned file offsets, so that direct I/O can write them out
// of order, and a file can be recovered after a crash. docs/reference/capture-format.md has the format.
//
//	offset 0     head unit: Section Header, Interface Descriptions, Mark (kind head), padded to the alignment
//	aligned      batch: Mark (kind batch), then packets, statistics and padding which fill its length exactly
//	aligned      batch ...
//
// A mark is a block of our own that readers skip, with a checksum. [Recover] accepts a batch
// only if its mark belongs to this segment, is intact, at its own offset and in order, and the
// blocks after it fill the length exactly. Missing batches in the middle become bridge marks,
// and missing ones at the end are truncated. Every standard reader then reads the file.
//
// # Two layouts
//
// slot: the header of an Enhanced Packet Block is written directly before the packet where it
// landed, and an option fills up to the next multiple of 512. So a frame is its own record,
// and no packet byte is copied. packed: packets are copied back to back into a staging buffer,
// and only the batch is aligned. A stream (standard output) is the packed layout after
// [AppendStreamHead], without marks.
//
// # What recovery checks
//
// Recovery checks the checksum of each mark and the structure of each block, but not the bytes
// of packets. After a power cut, a batch beyond the durable offset may have a valid structure
// and still have, inside a packet longer than a sector, bytes that never reached the disk.
// [Report.Doubtful] counts the packets that were not known to be durable. Segments must be
// preallocated as new files, and the head unit must be durable before the first batch.
//
// # Rules
//
// All integers are little-endian. Functions named Put write every byte of their part of the
// caller's slice and allocate nothing; a slice that is too short panics. Functions named Append
// grow a slice and are not for the hot path. Any goroutine may call any function.
package pcapng
